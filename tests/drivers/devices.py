"""The devices that a test of the torch executor runs on."""

import pytest
import torch

GPU_MARKS = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
)
CUDA = pytest.param("cuda", marks=GPU_MARKS)
DEVICES = ["cpu", CUDA]
