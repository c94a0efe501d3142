"""Static scales: what each estimator promises, on values drawn for it."""

import pytest
import torch

from paredown.compress.activations import ActivationGrid, StaticScale, round_activations
from paredown.compress.calibrate.activation_range import (
    ACTIVATION_ESTIMATORS,
    ActivationRange,
    scale_of_range,
    squared_error,
)
from paredown.errors import CheckpointError

INT8 = ActivationGrid(granularity="tensor")
INT4 = ActivationGrid(dtype="int4", granularity="tensor")
INT4_ASYM = ActivationGrid(dtype="int4", granularity="tensor", symmetric=False)
FP8 = ActivationGrid(dtype="fp8_e4m3", granularity="tensor")


def heavy_tailed(num_values: int = 20000) -> torch.Tensor:
    x = torch.randn(num_values, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x[7], x[11] = 60.0, -45.0
    return x + 0.5


def observed(x: torch.Tensor, num_batches: int = 4, **options: int) -> ActivationRange:
    seen = ActivationRange(**options)
    for batch in x.chunk(num_batches):
        seen.observe(batch)
    return seen


@pytest.mark.parametrize("grid", [INT8, INT4, INT4_ASYM, FP8], ids=lambda grid: grid.name)
def test_minmax_clamps_nothing_and_wastes_nothing(grid: ActivationGrid) -> None:
    x = heavy_tailed()
    static = observed(x).static_scale(grid)
    rounded = round_activations(x, grid, static)
    assert rounded.num_clamped <= (0 if grid.symmetric else 1)
    assert float(rounded.codes.abs().max()) >= grid.code_range[1]
    tighter = StaticScale(scale=static.scale * 0.8, zero=static.zero)
    assert round_activations(x, grid, tighter).num_clamped > 0


def test_percentile_leaves_out_the_outermost_share() -> None:
    x = heavy_tailed()
    static = observed(x).static_scale(INT8, "percentile")
    beyond = int((x.abs() > static.scale * 127.5).sum())
    assert 2 <= beyond <= 20000 * 0.001
    assert static.scale < 60 / 127 / 4


@pytest.mark.parametrize("grid", [INT4, INT4_ASYM, FP8], ids=lambda grid: grid.name)
def test_mse_is_the_best_of_its_ranges(grid: ActivationGrid) -> None:
    x = heavy_tailed()
    seen = observed(x)
    best = squared_error(x, grid, seen.static_scale(grid, "mse"))
    for step in range(21, 101):
        tried = scale_of_range(float(x.min()) * step / 100, float(x.max()) * step / 100, grid)
        rounded = round_activations(x, grid, tried).values
        naive = sum((float(a) - float(b)) ** 2 for a, b in zip(rounded[::50], x[::50], strict=True))
        assert squared_error(x[::50], grid, tried) == pytest.approx(naive, rel=1e-9)
        assert best <= squared_error(x, grid, tried) * (1 + 1e-12)


def test_running_is_the_mean_of_the_batches_with_later_ones_first() -> None:
    batches = [(-1.0, 2.0), (-3.0, 1.0), (0.5, 4.0)]
    seen = ActivationRange()
    low, high = batches[0]
    for batch in batches:
        seen.observe(torch.tensor(batch))
        low, high = 0.9 * low + 0.1 * batch[0], 0.9 * high + 0.1 * batch[1]
    static, expected = seen.static_scale(INT4_ASYM, "running"), scale_of_range(low, high, INT4_ASYM)
    assert (static.scale, static.zero) == (pytest.approx(expected.scale), expected.zero)
    assert seen.static_scale(INT8, "running").scale < seen.static_scale(INT8).scale


def test_a_running_range_holds_zero() -> None:
    seen = observed(torch.linspace(5, 6, 40))
    assert seen.static_scale(INT4_ASYM, "running").zero == INT4_ASYM.code_range[0]


def test_samples_are_bounded_and_extremes_are_not_sampled() -> None:
    seen = observed(heavy_tailed(), num_batches=3, values_per_batch=100)
    assert all(len(sample) <= 100 for sample in seen.samples)
    assert (seen.lowest, seen.highest) == (-44.5, 60.5)


def test_a_point_of_zeros_has_a_scale() -> None:
    seen = observed(torch.zeros(16))
    for estimator in ACTIVATION_ESTIMATORS:
        assert seen.static_scale(INT8, estimator).scale > 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(CheckpointError, match="not finite"):
        ActivationRange().observe(torch.tensor([1.0, bad]))
