"""The devices on which torch-executor tests run, and the tolerance on each."""

import pytest
import torch

from paredown.spec.device import Device

GPU_MARKS = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
)
CUDA = pytest.param("cuda", marks=GPU_MARKS)
DEVICES = ["cpu", CUDA]

# Relative to the largest logit. Float32 sums on a CPU are much alike, but a GPU adds in another
# order. Float32 itself is up to 1.7e-5 away from float64 in the tests' models (Gemma 2).
TOLERANCE: dict[Device, float] = {"cpu": 1e-5, "cuda": 4e-5}
