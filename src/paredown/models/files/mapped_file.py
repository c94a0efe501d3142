"""MappedFile: what is known of any file of weights that is mapped, whatever its format."""

import os
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt


class MappedFile(Protocol):
    @property
    def path(self) -> Path: ...

    @property
    def stat(self) -> os.stat_result:
        """What the system said of the file when it was mapped."""

    @property
    def file_bytes(self) -> int: ...

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        """The whole file."""

    def release(self) -> None:
        """Gives the memory of pages that were read back to the system; what is used again is read
        again."""
