"""compress/calibrate/moments.py against one product in float64; the largest magnitudes."""

import pytest
import torch

from paredown.compress.calibrate.input_statistics import InputStatistics
from paredown.compress.calibrate.moments import HessianSum
from paredown.errors import CheckpointError


def random_rows(num_rows: int, num_columns: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(num_columns, num_columns, generator=generator)
    return torch.randn(num_rows, num_columns, generator=generator) @ mixing


@pytest.mark.parametrize("num_columns", [1, 7, 512, 513, 1100])
def test_batches_add_up_to_one_product(num_columns: int) -> None:
    x_NI = random_rows(300, num_columns)
    hessian = HessianSum(num_columns)
    for batch in (x_NI[:1], x_NI[1:1], x_NI[1:97].reshape(2, 48, num_columns), x_NI[97:]):
        hessian.add(batch)
    moments = hessian.moments()
    expected_II = 2 / 300 * x_NI.double().T @ x_NI.double()
    sizes_I = expected_II.diagonal().sqrt()
    error_II = (moments.hessian_II - expected_II).abs() / torch.outer(sizes_I, sizes_I)
    assert moments.num_rows == 300
    assert error_II.max() < 1e-6
    assert torch.equal(moments.hessian_II, moments.hessian_II.T)


def test_many_small_batches_lose_nothing() -> None:
    x_NI = random_rows(20_000, 6) + 100
    hessian = HessianSum(6)
    for batch in x_NI.split(5):
        hessian.add(batch)
    expected_II = 2 / 20_000 * x_NI.double().T @ x_NI.double()
    torch.testing.assert_close(
        hessian.moments().hessian_II.double(), expected_II, rtol=2e-5, atol=0
    )


def test_it_goes_on_after_a_look() -> None:
    x_NI = random_rows(40, 5)
    looked, straight = HessianSum(5), HessianSum(5)
    for batch in x_NI.split(10):
        looked.add(batch)
        looked.moments()
        straight.add(batch)
    assert torch.equal(looked.moments().hessian_II, straight.moments().hessian_II)


def test_half_precision_is_summed_in_float32() -> None:
    x_NI = torch.full((4096, 3), 256.0, dtype=torch.bfloat16)
    hessian = HessianSum(3)
    hessian.add(x_NI)
    assert torch.equal(hessian.moments().hessian_II, torch.full((3, 3), 2.0 * 256**2))


def test_no_rows_is_a_sum_of_nothing() -> None:
    moments = HessianSum(4).moments()
    assert moments.num_rows == 0
    assert not moments.hessian_II.any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_inputs_that_are_not_finite_are_refused(bad: float) -> None:
    hessian = HessianSum(4)
    good_NI, bad_NI = random_rows(8, 4), random_rows(8, 4)
    bad_NI[3, 2] = bad
    hessian.add(good_NI)
    before_II = hessian.moments().hessian_II.clone()
    with pytest.raises(CheckpointError, match=r"not finite.*(nan|inf)"):
        hessian.add(bad_NI)
    assert torch.equal(hessian.moments().hessian_II, before_II)
    assert hessian.moments().num_rows == 8


def test_squares_past_the_largest_float_are_refused() -> None:
    hessian = HessianSum(2)
    hessian.add(torch.tensor([[1.0, 1e20]]))
    with pytest.raises(CheckpointError, match="column 1"):
        hessian.moments()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_largest_magnitudes_are_of_finite_inputs(bad: float) -> None:
    statistics = InputStatistics(2)
    statistics.add(torch.tensor([[1.0, -3.0]]))
    with pytest.raises(CheckpointError, match="not finite"):
        statistics.add(torch.tensor([[1.0, bad]]))
    assert statistics.static_scale("fp32") == pytest.approx(3 / 127.5)
