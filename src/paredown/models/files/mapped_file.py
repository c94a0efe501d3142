"""MappedFile: the interface of any mapped file of weights, whatever its format."""

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
        """Returns the file's stat result from the moment it was mapped."""

    @property
    def file_bytes(self) -> int: ...

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        """Returns the whole file."""

    def release(self) -> None:
        """Gives the memory of pages that were read back to the system; a later use reads them
        again."""
