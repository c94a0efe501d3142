"""EncoderStats: counters of an encoder's worker."""

from dataclasses import dataclass


@dataclass
class EncoderStats:
    """Counts of everything that was encoded; `busy_s` is the time that the executor took."""

    num_requests: int = 0
    num_texts: int = 0
    num_tokens: int = 0
    num_batches: int = 0
    busy_s: float = 0.0
