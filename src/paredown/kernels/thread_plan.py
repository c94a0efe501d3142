"""ThreadPlan: how many threads prefill runs on, and how many decode."""

from dataclasses import dataclass

from paredown.kernels import _core
from paredown.kernels.probe import resolve_num_threads

# A step of at most so many tokens is decode. As many requests run at a time by default.
MAX_DECODE_TOKENS = _core.MAX_DECODE_TOKENS


@dataclass(frozen=True, kw_only=True)
class ThreadPlan:
    """Threads of a step, by how many tokens it has.

    Bits do not depend on them (docs/internals/exactness.md).

    Decode reads all weights for a few tokens: where fewer threads than cores already take all that
    the memory gives, more of them only disturb each other and their neighbours.
    """

    prefill: int
    decode: int

    @classmethod
    def resolve(cls, num_threads: int | None, decode_threads: int | None = None) -> "ThreadPlan":
        """Resolves numbers of threads. None is the default of this machine, and as many for decode.
        Raises ConfigError outside [1, cores * 8] and beyond what the core can have."""
        prefill = resolve_num_threads(num_threads)
        decode = prefill if decode_threads is None else resolve_num_threads(decode_threads)
        return cls(prefill=prefill, decode=decode)

    @property
    def most(self) -> int:
        return max(self.prefill, self.decode)

    def explained(self) -> str:
        """In words."""
        return (
            f"{self.prefill} for prefill, {self.decode} for decode (steps of at most "
            f"{MAX_DECODE_TOKENS} tokens)"
        )
