"""The devices that a test of the torch executor runs on."""

import pytest
import torch

_NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, _NO_GPU])]
