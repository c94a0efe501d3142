"""Predicts how much disk a calibration's activations will take at their peak.

During a layer there are three files: its inputs, an intermediate one, and the next one that is
being made (passes.py). One of them may hold attention's heads, the others hidden states. A cut has
three more, those of the original's hidden states (compress/cut/cut_walk.py). Beside the layers of
an encoder-decoder's decoder lie the encoder's vectors. Codes of finished layers are smaller, about
as large as the final checkpoint.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from paredown.compress.calibrate.activation_file import ITEM_BYTES
from paredown.compress.calibrate.workspace import INPUTS
from paredown.errors import CapacityError
from paredown.units import format_bytes

_NUM_HIDDEN = 2
# The files of hidden states of a second stream.
NUM_ORIGINAL = 3


@dataclass(frozen=True, kw_only=True)
class CalibrationDisk:
    """The disk space for `num_sequences` windows of `num_tokens` tokens. A token has `hidden_size`
    numbers, or `heads_size` for the outputs of all attention heads. `num_more` counts files of
    hidden states besides those of every walk, `num_encoded` the tokens of the encoder's vectors
    beside each window."""

    num_sequences: int
    num_tokens: int
    hidden_size: int
    heads_size: int
    num_more: int = 0
    num_encoded: int = 0

    @property
    def num_columns(self) -> int:
        """The numbers per token in all files together."""
        return (_NUM_HIDDEN + self.num_more) * self.hidden_size + max(
            self.hidden_size, self.heads_size
        )

    @property
    def total(self) -> int:
        """The disk space in bytes."""
        numbers = self.num_tokens * self.num_columns + self.num_encoded * self.hidden_size
        return self.num_sequences * numbers * ITEM_BYTES

    def require(self, folder: Path) -> None:
        """Raises CapacityError, with the arithmetic, if the disk has too little room. `folder` is
        the workspace, which need not exist; its files from an interrupted run count as free, since
        they are used or removed."""
        there, free = free_bytes(folder)
        if self.total <= free:
            return
        raise CapacityError(
            "the activations of calibration do not fit on the disk",
            seen=f"{self.num_sequences} x {self.num_tokens} tokens of {self.num_columns} numbers "
            f"of {ITEM_BYTES} bytes: {format_bytes(self.total)} of "
            f"{format_bytes(free)} free in {there}",
            remedy="Use fewer or shorter windows (--samples, --calibration-tokens), or write the "
            "output where there is more room.",
        )


def free_bytes(folder: Path) -> tuple[Path, int]:
    """Returns the nearest folder that exists, and the bytes that a run in the workspace `folder`
    has there: what is free, and its activations from an interrupted run."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.is_dir())
    left = sum(file.stat().st_size for file in folder.glob(f"{INPUTS}*"))
    return there, shutil.disk_usage(there).free + left
