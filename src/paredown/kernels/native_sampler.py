"""The core's sampler: draws tokens from rows of logits and the states of their requests."""

from enum import IntEnum

from paredown.kernels._core import PooledSampler, Sampler, SamplingState
from paredown.kernels.isa import chosen_isa

__all__ = ["RowStatus", "Sampler", "SamplingState", "sampler_with_threads"]


class RowStatus(IntEnum):
    """The result of sampling a row, with the core's own numbers (csrc/sampling/sampler.h)."""

    OK = 0
    NOT_FINITE = 1
    NOTHING_ALLOWED = 2


def sampler_with_threads(num_threads: int) -> Sampler:
    """Returns a sampler on its own threads; `NativeModel.sampler` uses the model's."""
    return PooledSampler(chosen_isa(), num_threads)
