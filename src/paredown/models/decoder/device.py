"""The device that a checkpoint runs on: whether it exists, its free memory, and its float
precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import torch
from torch.backends import mkldnn

from paredown.errors import ConfigError, UnsupportedError
from paredown.kernels.probe import available_memory_bytes
from paredown.spec.device import Device


def check_device(device: Device) -> None:
    """Raises ConfigError for an unknown device, UnsupportedError for a GPU that PyTorch does not
    see."""
    if device not in get_args(Device):
        raise ConfigError(
            "there is no such device", seen=device, remedy=f"Use {' or '.join(get_args(Device))}."
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            "PyTorch sees no GPU",
            seen=f"device {device}, PyTorch {torch.__version__}",
            remedy="Compute on the processor (--device cpu, --train-device cpu), or install a "
            "build of PyTorch for this GPU.",
        )


def free_bytes(device: Device) -> int:
    """Returns the bytes that can be allocated now on that device."""
    if device == "cpu":
        return available_memory_bytes()
    # PyTorch's unused GPU memory can be allocated too.
    held_bytes = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return torch.cuda.mem_get_info()[0] + held_bytes


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiplies float32 in full precision within the block, even where the process lets libraries
    round factors to fewer bits (TF32 on a GPU, bf16 on a CPU)."""
    libraries = torch.backends.cuda.matmul, mkldnn.matmul  # type: ignore[attr-defined]
    before = [library.fp32_precision for library in libraries]
    for library in libraries:
        library.fp32_precision = "ieee"
    try:
        yield
    finally:
        for library, precision in zip(libraries, before, strict=True):
            library.fp32_precision = precision
