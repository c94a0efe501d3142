"""Pieces of text side by side in rows, and the digest of rows."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paredown.distill.packing import arrays_digest, fill_rows


@given(st.lists(st.integers(1, 8), max_size=30), st.integers(8, 20))
def test_rows_keep_all_pieces_in_order_and_are_as_full_as_they_can_be(
    lengths: list[int], num_tokens: int
) -> None:
    rows = fill_rows(lengths, int, num_tokens)
    assert [piece for row in rows for piece in row] == lengths
    assert all(0 < sum(row) <= num_tokens for row in rows)
    for row, following in pairwise(rows):
        assert sum(row) + following[0] > num_tokens


def test_a_digest_tells_shapes_numbers_and_arrays_apart() -> None:
    ones, zeros = np.ones((2, 3), np.int64), np.zeros((2, 3), np.int64)
    rows = [(ones,), (ones.reshape(3, 2),), (zeros,), (ones, zeros), (zeros, ones)]
    assert len({arrays_digest(*row) for row in rows}) == len(rows)
    assert arrays_digest(ones.T.copy().T, zeros) == arrays_digest(ones, zeros)
