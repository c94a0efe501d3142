"""The activations between two transformer layers, kept on disk: [N, T, D] float32.

A file has no header. Each batch is read on demand, so that memory holds only one batch for a
calibration text of any length. Data that fits in the system's cache never reaches the disk.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paredown.errors import OutputError
from paredown.files.new_file import PRIVATE, make_file

ITEM_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ActivationFile:
    """A file of `num_sequences` sequences with `num_tokens` rows of `num_columns` numbers."""

    path: Path
    num_sequences: int
    num_tokens: int
    num_columns: int

    @property
    def num_bytes(self) -> int:
        return self.num_sequences * self.num_tokens * self.num_columns * ITEM_BYTES

    def is_whole(self) -> bool:
        return self.path.is_file() and self.path.stat().st_size == self.num_bytes

    def batches(self, batch_size: int) -> Iterator[Tensor]:
        """Yields batches [B, T, D] in order; the last may be smaller."""
        shape = (-1, self.num_tokens, self.num_columns)
        sequence = self.num_tokens * self.num_columns
        for start in range(0, self.num_sequences, batch_size):
            count = min(batch_size, self.num_sequences - start) * sequence
            values = np.fromfile(
                self.path, np.float32, count=count, offset=start * sequence * ITEM_BYTES
            )
            assert values.size == count, self.path
            yield torch.from_numpy(values.reshape(shape))

    def write(self, batches: Iterable[Tensor], *, lasting: bool = True) -> None:
        """Writes the file whole or not at all. A file that is not `lasting` may be lost in a crash
        of the machine. Raises OutputError if the disk is full."""
        partial = self.path.with_suffix(".partial")
        try:
            partial.unlink(missing_ok=True)  # left by a killed run
            with make_file(partial, PRIVATE) as file:
                for batch in batches:
                    file.write(batch.contiguous().numpy().data)
                file.flush()
                if lasting:
                    os.fsync(file.fileno())
            partial.replace(self.path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OutputError(
                f"the activations of calibration could not be written to {self.path.parent}",
                seen=f"{error.strerror or error}; {self.num_bytes:,} bytes are needed",
                remedy="Free some space, or calibrate on fewer or shorter samples.",
            ) from error
        assert self.is_whole(), self.path
