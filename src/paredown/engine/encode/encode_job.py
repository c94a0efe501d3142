"""EncodeJob: texts to encode, and what becomes of their vectors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from paredown.executors.encoder_protocol import EncoderOutput, TokenText

T = TypeVar("T")
# The vector of a text, [size], or the vectors of its tokens, [num_tokens, size].
Row = npt.NDArray[np.float32]


def same_row(row: Row) -> Row:
    """Returns the row."""
    return row


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """The tokens of each text, special ones too, and the numbers of the texts that were cut."""

    num_tokens: tuple[int, ...]
    cut: tuple[int, ...] = ()

    @property
    def total_tokens(self) -> int:
        return sum(self.num_tokens)


@dataclass(frozen=True, kw_only=True)
class EncodeJob(Generic[T]):
    """One request's texts. `keep` makes each text's row smaller as soon as it is computed, and
    `finish` makes the answer of all rows, in the order of the texts."""

    texts: list[TokenText]
    counts: TextCounts
    finish: Callable[[list[Row]], T]
    output: EncoderOutput = "head"
    keep: Callable[[Row], Row] = field(default=same_row)

    @cached_property
    def num_tokens(self) -> int:
        """Tokens to compute."""
        return sum(len(text.token_ids) for text in self.texts)
