"""The pages of a slice as the core takes them: a list, or 32-bit integers where they lie."""

from array import array

import numpy as np
import pytest

from fakes.random_executor import TINY, random_executor
from paredown.executors.protocol import SequenceSlice
from paredown.spec.weight import WeightSpec


def test_arrays_and_lists_are_read_alike():
    executor = random_executor(TINY, WeightSpec(dtype="fp32"))
    pages = [[3, 1, 4], [5, 2]]
    rows = []
    for kind in (
        list,
        lambda numbers: array("i", numbers),
        lambda numbers: np.array(numbers, "i4"),
    ):
        slices = [
            SequenceSlice(token_ids=[7, 8, 9] * 10, start=0, pages=kind(one), num_logits=1)
            for one in pages
        ]
        rows.append(executor.step(slices))
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])


@pytest.mark.parametrize(
    "pages",
    [
        array("q", [0]),
        array("f", [0.0]),
        array("h", [0, 0]),
        np.zeros((1, 1), np.int32),
        b"\0\0\0\0",
        [2**31],
        ["0"],
        None,
        array("i", [-1]),
        array("i"),
    ],
)
def test_other_pages_are_refused(pages):
    executor = random_executor(TINY, WeightSpec(dtype="fp32"))
    good = SequenceSlice(token_ids=[1], start=0, pages=[0], num_logits=1)
    before = executor.step([good])
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        executor.step([good, SequenceSlice(token_ids=[1], start=0, pages=pages, num_logits=1)])
    assert np.array_equal(executor.step([good]), before)
