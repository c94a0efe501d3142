"""Exports the vectors of an index as NumPy and other indexes read them."""

from pathlib import Path

import numpy as np

from paredown.models.files.whole_file import whole_file, write_array
from paredown.retrieve.opened_index import OpenedIndex


def export_npy(opened: OpenedIndex, path: Path) -> None:
    """Writes all vectors [N, D] as float32, batch by batch. Raises OutputError."""
    header = opened.header
    described = {
        "descr": np.dtype(np.float32).str,
        "fortran_order": False,
        "shape": (header.num_vectors, header.num_dims),
    }
    with whole_file(path) as file:
        np.lib.format.write_array_header_1_0(file, described)
        for vectors_ND in opened.vectors():
            write_array(file, vectors_ND)
