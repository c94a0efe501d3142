"""Texts as a padded batch, for engines that take token ids."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import tokenizers


class Tokens:
    """The tokenizer of a folder, with padding to the longest text of a batch."""

    def __init__(self, model: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
        self._tokenizer.enable_padding()
        self._tokenizer.no_truncation()

    def batch(self, texts: list[str]) -> dict[str, npt.NDArray[np.int64]]:
        """Returns the inputs of a BERT, each [B, T]."""
        found = self._tokenizer.encode_batch(texts)
        return {
            "input_ids": np.array([one.ids for one in found], dtype=np.int64),
            "attention_mask": np.array([one.attention_mask for one in found], dtype=np.int64),
            "token_type_ids": np.array([one.type_ids for one in found], dtype=np.int64),
        }
