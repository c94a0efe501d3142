"""Rows: the training text as rows of one length, cut or packed. Shapes: N rows, T tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from paredown.distill.batch import Batch
from paredown.distill.packing import arrays_digest, fill_rows
from paredown.errors import ConfigError


class BatchRows(Protocol):
    """Rows of one length, `num_tokens`, of which batches are made; `digest` is the SHA-256 of
    everything."""

    @property
    def num_rows(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def digest(self) -> str: ...
    def batch(self, rows: npt.NDArray[np.int64]) -> Batch:
        """Returns the rows of these indices."""
        ...


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text's tokens, and which of them the model learns to predict. The first never counts."""

    token_ids: Sequence[int]
    is_target: Sequence[bool] | None = None


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Implements BatchRows. `is_target_NT` is true for tokens that are predicted from those before
    them. `texts_NT` numbers the text of each token of a row; with None a row is one text."""

    tokens_NT: npt.NDArray[np.int64]
    is_target_NT: npt.NDArray[np.bool_]
    texts_NT: npt.NDArray[np.int32] | None = None

    @classmethod
    def from_windows(cls, windows_NT: npt.NDArray[np.int64]) -> "Rows":
        """Takes each window as one text. Raises ConfigError for windows without a prediction."""
        if windows_NT.ndim != 2 or not len(windows_NT) or windows_NT.shape[1] < 2:
            raise ConfigError(
                "there is no text to train on",
                seen=f"windows of shape {windows_NT.shape}",
                remedy="Give at least one window of two tokens or more.",
            )
        is_target_NT = np.ones(windows_NT.shape, np.bool_)
        is_target_NT[:, 0] = False
        return cls(tokens_NT=windows_NT, is_target_NT=is_target_NT)

    @classmethod
    def pack(cls, texts: Sequence[Text], num_tokens: int) -> "Rows":
        """Packs texts side by side into rows of `num_tokens` tokens, in their order. A row's unused
        end is a text of its own without targets. A longer text is cut into pieces; each begins with
        the last token of the piece before it, so that no target is lost. Raises ConfigError where
        nothing is left to predict."""
        pieces = _pieces(texts, num_tokens)
        filling = fill_rows(pieces, lambda piece: len(piece[0]), num_tokens)
        if not filling:
            raise ConfigError(
                "there is no text to train on",
                seen=f"{len(texts)} texts, none of two tokens or more",
                remedy="Give texts with more tokens.",
            )
        rows = cls(
            tokens_NT=np.zeros((len(filling), num_tokens), np.int64),
            is_target_NT=np.zeros((len(filling), num_tokens), np.bool_),
            texts_NT=np.zeros((len(filling), num_tokens), np.int32),
        )
        for row, found in enumerate(filling):
            rows._fill(row, found)
        return rows

    @property
    def num_rows(self) -> int:
        return len(self.tokens_NT)

    @property
    def num_tokens(self) -> int:
        """The length of a row."""
        return int(self.tokens_NT.shape[1])

    @property
    def digest(self) -> str:
        """The SHA-256 of everything."""
        others = () if self.texts_NT is None else (self.texts_NT,)
        return arrays_digest(self.tokens_NT, self.is_target_NT, *others)

    def batch(self, rows: npt.NDArray[np.int64]) -> Batch:
        tokens_BT = torch.from_numpy(self.tokens_NT[rows])
        texts_BT = None if self.texts_NT is None else torch.from_numpy(self.texts_NT[rows])
        return Batch(
            inputs_BT=tokens_BT[:, :-1].contiguous(),
            targets_BT=tokens_BT[:, 1:].contiguous(),
            is_target_BT=torch.from_numpy(self.is_target_NT[rows])[:, 1:].contiguous(),
            texts_BT=None if texts_BT is None else texts_BT[:, :-1].contiguous(),
        )

    def _fill(self, row: int, pieces: Sequence[tuple[list[int], list[bool]]]) -> None:
        assert self.texts_NT is not None
        start = 0
        for number, (ids, is_target) in enumerate(pieces):
            here = slice(start, start + len(ids))
            self.tokens_NT[row, here] = ids
            self.is_target_NT[row, here] = is_target
            self.texts_NT[row, here] = number
            start += len(ids)
        self.texts_NT[row, start:] = len(pieces)


def _pieces(texts: Sequence[Text], num_tokens: int) -> list[tuple[list[int], list[bool]]]:
    """Returns the tokens and targets of all pieces that predict something."""
    assert num_tokens > 1
    found = []
    for text in texts:
        ids = list(text.token_ids)
        is_target = [True] * len(ids) if text.is_target is None else list(text.is_target)
        assert len(is_target) == len(ids)
        for start in range(0, len(ids) - 1, num_tokens - 1):
            piece = is_target[start : start + num_tokens]
            piece[0] = False
            if any(piece):
                found.append((ids[start : start + num_tokens], piece))
    return found
