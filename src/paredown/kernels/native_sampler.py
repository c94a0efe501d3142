"""The core's sampler: rows of logits and the states of their requests in, tokens out."""

from enum import IntEnum

from paredown.kernels._core import PooledSampler, Sampler, SamplingState
from paredown.kernels.isa import chosen_isa

__all__ = ["RowStatus", "Sampler", "SamplingState", "sampler_with_threads"]


class RowStatus(IntEnum):
    """How a row ended. The core's own numbers (csrc/sampling/sampler.h)."""

    OK = 0
    NOT_FINITE = 1
    NOTHING_ALLOWED = 2


def sampler_with_threads(num_threads: int) -> Sampler:
    """A sampler on threads of its own; a model's is `NativeModel.sampler`."""
    return PooledSampler(chosen_isa(), num_threads)
