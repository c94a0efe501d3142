"""Rows are shared out over threads so that each is worked on once."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.evaluate.quality import rows
from paredown.evaluate.quality.rows import over_rows


@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 40), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_every_row_is_worked_on_once(
    num_rows: int, size: int, stretch_values: int, num_threads: int
) -> None:
    """In stretches that hold what is said of them, each within the shape that is told."""
    counts, lock = np.zeros(num_rows, int), threading.Lock()
    threads = set[int]()

    def work(stretches: Sequence[slice], shape: tuple[int, int]) -> None:
        for one in stretches:
            with lock:
                counts[one] += 1
                threads.add(threading.get_ident())
            assert 0 < one.stop - one.start <= shape[0]
            assert shape[1] == size
            assert shape[0] == 1 or shape[0] * size <= stretch_values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_STRETCH_VALUES", stretch_values)
        patch.setattr(rows, "default_num_threads", lambda: num_threads)
        over_rows(work, np.zeros((num_rows, size), np.float32))
    assert counts.tolist() == [1] * num_rows
    assert 1 <= len(threads) <= num_threads


def test_an_error_of_a_thread_is_raised() -> None:
    def work(stretches: Sequence[slice], shape: tuple[int, int]) -> None:
        raise ZeroDivisionError("broken")

    with pytest.raises(ZeroDivisionError, match="broken"):
        over_rows(work, np.zeros((3, 4), np.float32))
