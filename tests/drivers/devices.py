"""The devices that a test of the torch executor runs on, and how near it comes to others there."""

import pytest
import torch

from paredown.executors.run_options import Device

GPU_MARKS = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
)
CUDA = pytest.param("cuda", marks=GPU_MARKS)
DEVICES = ["cpu", CUDA]

# Relative to the largest logit. Two sums in float32 on a CPU are much alike; a GPU adds in another
# order, and float32 itself is up to 1.7e-5 away from float64 in the models of the tests (Gemma 2).
TOLERANCE: dict[Device, float] = {"cpu": 1e-5, "cuda": 4e-5}
