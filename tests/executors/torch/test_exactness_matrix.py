"""Promise 1, Exact, on the torch executor: it keeps the whole promise on every device."""

from collections.abc import Iterator

import pytest
import torch

from drivers.devices import DEVICES
from drivers.exactness_checks import TOGETHER, check, named, one_axis
from drivers.exactness_matrix import AXES, UNEQUAL, Matrix, Point
from drivers.pairwise import pairwise

# It keeps keys and values in floats alone, and computes int4 weights as it does others. Other
# numbers of threads and the largest batches are run alone: they take most of the time.
OWN = {
    "kv": ("bf16", "fp32"),
    "weights": ("bf16", UNEQUAL),
    "threads": (1,),
    "batch": (1, 2, 9),
    "step": (4096, 64, 7),
}
PAIRS = pairwise(AXES | OWN)


@pytest.fixture(scope="module", params=DEVICES)
def matrix(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Matrix]:
    before = torch.get_num_threads()
    yield Matrix(tmp_path_factory.mktemp("models"), "torch", request.param)
    assert torch.get_num_threads() == before, "the process has the threads that it had"


@pytest.mark.parametrize("point", [TOGETHER, *one_axis(TOGETHER)], ids=named)
def test_one_axis_changes_no_bit_in_a_batch(matrix: Matrix, point: Point) -> None:
    check(matrix, point)


@pytest.mark.parametrize("point", PAIRS, ids=named)
def test_no_pair_of_axes_changes_a_bit(matrix: Matrix, point: Point) -> None:
    check(matrix, point)
