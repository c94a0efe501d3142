"""EncodeJob: texts to encode, and what becomes of their vectors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from paredown.executors.encoder_protocol import EncoderOutput, TokenText

T = TypeVar("T")
U = TypeVar("U")
# The vector of a text, [size], or the vectors of its tokens, [num_tokens, size].
Row = npt.NDArray[np.float32]


def same_row(number: int, row: Row) -> Row:
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
    """One request's texts. `keep(number, row)` makes a text's row smaller as soon as it is
    computed, and `finish` makes the answer of all rows, in the order of the texts."""

    texts: list[TokenText]
    counts: TextCounts
    finish: Callable[[list[Row]], T]
    output: EncoderOutput = "head"
    keep: Callable[[int, Row], Row] = field(default=same_row)

    @cached_property
    def num_tokens(self) -> int:
        """Tokens to compute."""
        return sum(len(text.token_ids) for text in self.texts)

    def then(self, make: Callable[[T], U]) -> "EncodeJob[U]":
        """Returns the job whose answer is made of this one's."""
        return EncodeJob(
            texts=self.texts,
            counts=self.counts,
            finish=lambda rows: make(self.finish(rows)),
            output=self.output,
            keep=self.keep,
        )


def joined(
    first: EncodeJob[list[Row]],
    second: EncodeJob[list[Row]],
    finish: Callable[[list[Row], list[Row]], T],
) -> EncodeJob[T]:
    """Returns the job that computes the texts of both and makes one answer of both answers."""
    assert first.output == second.output
    num_first = len(first.texts)

    def keep(number: int, row: Row) -> Row:
        if number < num_first:
            return first.keep(number, row)
        return second.keep(number - num_first, row)

    return EncodeJob(
        texts=first.texts + second.texts,
        counts=TextCounts(num_tokens=first.counts.num_tokens + second.counts.num_tokens),
        finish=lambda rows: finish(first.finish(rows[:num_first]), second.finish(rows[num_first:])),
        output=first.output,
        keep=keep,
    )
