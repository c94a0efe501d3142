"""Packing: pieces of text side by side in rows of one length, and the digest of such rows."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Piece = TypeVar("Piece")


def fill_rows(
    pieces: Iterable[Piece], length_of: Callable[[Piece], int], num_tokens: int
) -> list[list[Piece]]:
    """Returns the pieces of each row, in their order: a row ends where the next piece has no room
    in its `num_tokens`. Each piece has from 1 to `num_tokens` tokens."""
    rows = list[list[Piece]]()
    room = 0
    for piece in pieces:
        length = length_of(piece)
        assert 0 < length <= num_tokens, length
        if length > room:
            rows.append([])
            room = num_tokens
        rows[-1].append(piece)
        room -= length
    return rows


def arrays_digest(first: npt.NDArray[Any], *others: npt.NDArray[Any]) -> str:
    """Returns the SHA-256 of the arrays of rows, which all have the shape of the first one."""
    found = hashlib.sha256(repr(first.shape).encode())
    for array in (first, *others):
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
