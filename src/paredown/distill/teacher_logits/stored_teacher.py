"""StoredTeacher: a teacher whose distributions were kept on disk, and that need not run."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paredown.distill.batch import Batch
from paredown.distill.teacher import LogProbabilities
from paredown.distill.teacher_logits.header import read_header
from paredown.distill.teacher_logits.keep import Keep
from paredown.distill.teacher_logits.mapped_rows import HELD_BYTES, MappedRows
from paredown.distill.teacher_logits.row_keys import batch_keys
from paredown.distill.teacher_logits.stored_text import StoredText
from paredown.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class StoredTeacher:
    """Implements Teacher for the rows that were written (write.py), in any parts and order.
    `numbers` has the row of the file for each key."""

    keep: Keep
    vocab_size: int
    numbers: Mapping[bytes, int]
    stored: MappedRows
    digest: str

    @classmethod
    def open(cls, folder: Path, text: StoredText) -> "StoredTeacher":
        """Maps the files. Raises ConfigError for those of another teacher or text and for those
        that are missing or not whole, and CheckpointError for damaged ones."""
        header = read_header(folder)
        if header is None:
            raise ConfigError(
                "there are no distributions of a teacher",
                seen=folder,
                remedy="Give the folder that --teacher-logits wrote.",
            )
        header.check_same(text.header, folder, is_whole=True)
        return cls(
            keep=text.keep,
            vocab_size=header.vocab_size,
            numbers={key: number for number, key in enumerate(text.places)},
            stored=MappedRows(folder, header.num_rows),
            digest=header.digest,
        )

    @property
    def held_bytes(self) -> int:
        """The most memory that the map takes."""
        return min(self.stored.num_bytes, HELD_BYTES)

    def predict(self, batch: Batch) -> LogProbabilities:
        counts_B = batch.is_target_BT.sum(1).tolist()
        rows = [
            self._row(key, count) for key, count in zip(batch_keys(batch), counts_B, strict=True)
        ]
        device = batch.inputs_BT.device
        borders = [0, *np.cumsum(counts_B).tolist()]

        def log_probabilities(wanted: slice) -> Tensor:
            first, last, _ = wanted.indices(borders[-1])
            parts = [
                known(slice(max(first, start) - start, min(last, end) - start)).to(device)
                for known, (start, end) in zip(rows, pairwise(borders), strict=True)
                if max(first, start) < min(last, end)
            ]
            return torch.cat(parts) if parts else torch.empty(0, self.vocab_size, device=device)

        return log_probabilities

    def _row(self, key: bytes, num_targets: int) -> LogProbabilities:
        number = self.numbers[key]
        try:
            return self.keep.decode(self.stored.row(number), num_targets, self.vocab_size)
        except ValueError as error:
            raise self.stored.damaged(number, error) from error
