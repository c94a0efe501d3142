"""ThreadPlan: the numbers of threads for prefill and for decode."""

from dataclasses import dataclass

from paredown.kernels import _core
from paredown.kernels.probe import resolve_num_threads

# A step of at most this many tokens counts as decode. By default as many requests run at a time.
MAX_DECODE_TOKENS = _core.MAX_DECODE_TOKENS


@dataclass(frozen=True, kw_only=True)
class ThreadPlan:
    """The threads of a step, by its number of tokens.

    Bits do not depend on them (docs/internals/exactness.md).

    Decode reads all weights for a few tokens. Where fewer threads than cores already use the full
    memory bandwidth, more threads only disturb each other and other programs.
    """

    prefill: int
    decode: int

    @classmethod
    def resolve(cls, num_threads: int | None, decode_threads: int | None = None) -> "ThreadPlan":
        """Resolves numbers of threads. None means this machine's default, and for decode the same
        number. Raises ConfigError outside [1, cores * 8] and beyond the core's maximum."""
        prefill = resolve_num_threads(num_threads)
        decode = prefill if decode_threads is None else resolve_num_threads(decode_threads)
        return cls(prefill=prefill, decode=decode)

    @property
    def most(self) -> int:
        return max(self.prefill, self.decode)

    def explained(self) -> str:
        """Explains the plan in words."""
        return (
            f"{self.prefill} for prefill, {self.decode} for decode (steps of at most "
            f"{MAX_DECODE_TOKENS} tokens)"
        )
