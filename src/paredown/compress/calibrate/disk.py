"""How much disk the activations of a calibration will take at their peak, before it begins.

While a layer is at work, three files are there: what enters it, what it has made of that so far,
and what is made next (passes.py): one of them may hold attention's heads, the others hidden states.
Codes of finished layers are small beside them and come to what the checkpoint itself will take.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from paredown.compress.calibrate.activation_file import ITEM_BYTES
from paredown.compress.calibrate.workspace import INPUTS
from paredown.errors import CapacityError
from paredown.units import format_bytes

_NUM_HIDDEN = 2


@dataclass(frozen=True, kw_only=True)
class CalibrationDisk:
    """The disk space for `num_sequences` windows of `num_tokens` tokens, each `hidden_size`
    numbers, or `heads_size` for what all heads of attention make."""

    num_sequences: int
    num_tokens: int
    hidden_size: int
    heads_size: int

    @property
    def num_columns(self) -> int:
        """The numbers that all files together hold for a token."""
        return _NUM_HIDDEN * self.hidden_size + max(self.hidden_size, self.heads_size)

    @property
    def total(self) -> int:
        """Bytes."""
        return self.num_sequences * self.num_tokens * self.num_columns * ITEM_BYTES

    def require(self, folder: Path) -> None:
        """`folder` is the workspace, there or not. Raises CapacityError, with the arithmetic, when
        the disk has no room for them beside what an interrupted run left, which is used or
        removed."""
        there = next(one for one in (folder, *folder.absolute().parents) if one.is_dir())
        left = sum(file.stat().st_size for file in folder.glob(f"{INPUTS}*"))
        free = shutil.disk_usage(there).free + left
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
