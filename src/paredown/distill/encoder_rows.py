"""EncoderRows: whole texts for an encoder, packed side by side in rows of one length.

Shapes: N rows, T tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from paredown.distill.batch import Batch
from paredown.distill.packing import arrays_digest, fill_rows
from paredown.errors import ConfigError

# The label of a text that has none, as PyTorch's cross-entropy passes over it.
NO_LABEL = -100


@dataclass(frozen=True, kw_only=True)
class LabelledText:
    """A text with its special tokens. `type_ids` are the segments of a pair, `label` the number of
    its label, if it has one."""

    token_ids: Sequence[int]
    type_ids: Sequence[int] | None = None
    label: int | None = None


@dataclass(frozen=True, kw_only=True)
class EncoderRows:
    """Implements BatchRows. `texts_NT` numbers the text of each token of a row; each token that a
    row does not use is a text of its own, at position 0. `is_first_NT` marks the first token of
    each real text, where `labels_NT` has its label."""

    tokens_NT: npt.NDArray[np.int64]
    texts_NT: npt.NDArray[np.int32]
    types_NT: npt.NDArray[np.int64]
    is_first_NT: npt.NDArray[np.bool_]
    labels_NT: npt.NDArray[np.int64]

    @classmethod
    def pack(cls, texts: Iterable[LabelledText], num_tokens: int) -> "EncoderRows":
        """Packs texts of at most `num_tokens` tokens into rows, in their order. Raises ConfigError
        without a text."""
        filling = fill_rows(texts, lambda text: len(text.token_ids), num_tokens)
        if not filling:
            raise ConfigError(
                "there is no text to train on", seen="no text", remedy="Give texts (--data)."
            )
        shape = (len(filling), num_tokens)
        rows = cls(
            tokens_NT=np.zeros(shape, np.int64),
            texts_NT=np.zeros(shape, np.int32),
            types_NT=np.zeros(shape, np.int64),
            is_first_NT=np.zeros(shape, np.bool_),
            labels_NT=np.full(shape, NO_LABEL, np.int64),
        )
        for row, found in enumerate(filling):
            rows._fill(row, found)
        return rows

    @property
    def num_rows(self) -> int:
        return len(self.tokens_NT)

    @property
    def num_tokens(self) -> int:
        return int(self.tokens_NT.shape[1])

    @property
    def num_texts(self) -> int:
        return int(self.is_first_NT.sum())

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The label of each text; NO_LABEL for those that have none."""
        return self.labels_NT[self.is_first_NT]

    @property
    def digest(self) -> str:
        return arrays_digest(
            self.tokens_NT, self.texts_NT, self.types_NT, self.is_first_NT, self.labels_NT
        )

    def batch(self, rows: npt.NDArray[np.int64]) -> Batch:
        return Batch(
            inputs_BT=torch.from_numpy(self.tokens_NT[rows]),
            targets_BT=torch.from_numpy(self.labels_NT[rows]),
            is_target_BT=torch.from_numpy(self.is_first_NT[rows]),
            texts_BT=torch.from_numpy(self.texts_NT[rows]),
            types_BT=torch.from_numpy(self.types_NT[rows]),
        )

    def _fill(self, row: int, texts: Sequence[LabelledText]) -> None:
        start = 0
        for number, text in enumerate(texts):
            here = slice(start, start + len(text.token_ids))
            self.tokens_NT[row, here] = text.token_ids
            self.texts_NT[row, here] = number
            if text.type_ids is not None:
                self.types_NT[row, here] = text.type_ids
            self.is_first_NT[row, start] = True
            if text.label is not None:
                self.labels_NT[row, start] = text.label
            start += len(text.token_ids)
        num_unused = self.num_tokens - start
        self.texts_NT[row, start:] = len(texts) + np.arange(num_unused)
