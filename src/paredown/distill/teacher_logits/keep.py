"""Keep: what of a teacher's distributions lies on disk, and what is made of it again.

A row of text becomes one stretch of bytes, whatever else is in the file. Shapes: N targets of a
row, V tokens of the vocabulary.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from paredown.distill.teacher import LogProbabilities

Bytes = npt.NDArray[np.uint8]


class Keep(Protocol):
    """A frozen dataclass.

    `name`         as people type it: samples-50, top-64, whole
    `is_positive`  every token has a probability above 0, as losses that divide by it need
    `is_linear`    it is an estimate that is right on average, for losses linear in p alone
    `rule`         what stands for the probability of tokens that are not kept, for the header
    """

    @property
    def name(self) -> str: ...

    @property
    def is_positive(self) -> bool: ...

    @property
    def is_linear(self) -> bool: ...

    @property
    def rule(self) -> str: ...

    def num_exact(self, vocab_size: int) -> int:
        """Returns of how many tokens, the likeliest ones, the probability itself is kept."""
        ...

    def check(self, vocab_size: int) -> None:
        """Raises ConfigError for a vocabulary that is too small."""
        ...

    def least_bytes(self, num_targets: int, vocab_size: int) -> int:
        """Returns what so many targets take on disk at least."""
        ...

    def encode(
        self,
        known: LogProbabilities,
        num_targets: int,
        vocab_size: int,
        random: np.random.Generator,
    ) -> bytes:
        """Returns the bytes of a row's targets."""
        ...

    def decode(self, data: Bytes, num_targets: int, vocab_size: int) -> LogProbabilities:
        """Returns what `encode` kept, in float32. Raises ValueError for bytes that it cannot have
        written."""
        ...


def id_dtype(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """Returns the narrowest dtype that holds every token's number."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def checked_ids(ids: npt.NDArray[np.unsignedinteger], vocab_size: int) -> npt.NDArray[np.int64]:
    """Returns the tokens' numbers. Raises ValueError for one that the vocabulary does not have."""
    if ids.size and int(ids.max()) >= vocab_size:
        raise ValueError(f"token {int(ids.max())} of a vocabulary of {vocab_size}")
    return ids.astype(np.int64)


def checked_length(data: Bytes, num_bytes: int) -> None:
    """Raises ValueError unless the data has so many bytes."""
    if data.size != num_bytes:
        raise ValueError(f"{data.size} bytes where {num_bytes} belong")
