"""The device that a checkpoint runs on: whether it is there, and the memory that it has left."""

from typing import get_args

import torch

from paredown.errors import ConfigError, UnsupportedError
from paredown.executors.run_options import Device
from paredown.kernels.probe import available_memory_bytes


def check_device(device: Device) -> None:
    """Raises ConfigError for a device that nobody knows, UnsupportedError for a GPU that PyTorch
    does not see."""
    if device not in get_args(Device):
        raise ConfigError(
            "there is no such device", seen=device, remedy=f"Use {' or '.join(get_args(Device))}."
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            "PyTorch sees no GPU",
            seen=f"device {device}, PyTorch {torch.__version__}",
            remedy="Use --device cpu, or install a build of PyTorch for this GPU.",
        )


def free_bytes(device: Device) -> int:
    """Memory that can be taken now on that device."""
    if device == "cpu":
        return available_memory_bytes()
    return torch.cuda.mem_get_info()[0]
