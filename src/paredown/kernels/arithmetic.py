"""The properties of machine and build that the last bits of a result depend on."""

import platform
from functools import cache
from pathlib import Path

import numpy as np

from paredown.kernels import _core
from paredown.kernels.packed_file import hash_bytes
from paredown.kernels.probe import processor_name


def arithmetic(isa: str) -> dict[str, str]:
    """Returns everything besides weights and tokens that the bits of a result depend on.

    These are the instruction set, the core's build, the processor and the C library. The build
    fixes the order of every sum and the layout of the weights; the C library's cosine makes the
    rotary angles. Equal entries mean equal bits.
    """
    return {
        "isa": isa,
        "core": _core_digest(),
        "processor": processor_name(),
        "libc": " ".join(platform.libc_ver()).strip(),
    }


@cache
def _core_digest() -> str:
    built = Path(str(_core.__file__))
    return hash_bytes(np.fromfile(built, np.uint8), num_threads=1)
