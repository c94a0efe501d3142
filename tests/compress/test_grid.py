"""compress/grid.py against the NumPy quantizers, code for code."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.compress.fit_grid import RangeEstimator, fit_grid, fit_shared_grid
from paredown.compress.grid import grouped, to_weight
from paredown.formats.quantize import quantize
from paredown.formats.table import FORMATS
from paredown.spec.weight import ScaleDType

QUANTIZED = [name for name, spec in FORMATS.items() if spec.is_quantized]


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(QUANTIZED),
    dtype=st.sampled_from(["fp32", "bf16", "fp16"]),
    seed=st.integers(0, 2**32 - 1),
    log_scale=st.integers(-12, 6),
)
def test_codes_are_those_of_formats(
    name: str, dtype: ScaleDType, seed: int, log_scale: int
) -> None:
    spec = FORMATS[name]
    rng = np.random.default_rng(seed)
    weight_OI = (rng.standard_normal((5, 256)) * 2.0**log_scale).astype(np.float32)
    weight_OI[0] = 0
    weight_OI[1, :128] = np.abs(weight_OI[1, :128])
    expected = quantize(weight_OI, spec, dtype)
    values_OGC = grouped(torch.from_numpy(weight_OI), spec.group_size)
    grid = fit_grid(values_OGC, spec, dtype)
    codes_OGC = grid.codes(values_OGC)
    weight = to_weight(codes_OGC.reshape(5, 256), grid)
    np.testing.assert_array_equal(weight.values_OI, expected.values_OI)
    np.testing.assert_array_equal(weight.scales_OG, expected.scales_OG)
    if expected.zero_points_OG is not None:
        np.testing.assert_array_equal(weight.zero_points_OG, expected.zero_points_OG)
    values = grid.values(codes_OGC).reshape(5, 256).numpy()
    np.testing.assert_array_equal(values, weight.at_work())


@pytest.mark.parametrize("name", ["int4-g32", "int3-g64-asym", "int8", "fp8"])
@pytest.mark.parametrize("estimator", ["mse", "percentile"])
def test_estimators_look_at_each_group_alone(name: str, estimator: RangeEstimator) -> None:
    spec = FORMATS[name]
    generator = torch.Generator().manual_seed(3)
    weight_OI = torch.randn(6, 2048, generator=generator, dtype=torch.float64)
    values_OGC = grouped(weight_OI, spec.group_size)
    grid = fit_grid(values_OGC, spec, "fp32", estimator)
    row, group = 4, values_OGC.shape[1] - 1
    alone = fit_grid(values_OGC[row : row + 1, group : group + 1], spec, "fp32", estimator)
    assert grid.scales_OG[row, group] == alone.scales_OG[0, 0]
    assert grid.zeros_OG[row, group] == alone.zeros_OG[0, 0]


def test_mse_finds_the_best_of_its_ranges_and_never_loses_to_minmax() -> None:
    generator = torch.Generator().manual_seed(4)
    values_OGC = torch.randn(8, 4, 64, generator=generator, dtype=torch.float64)
    values_OGC[:, :, 0] *= 8
    spec = FORMATS["int4-g64"]

    def errors(estimator: RangeEstimator) -> torch.Tensor:
        grid = fit_grid(values_OGC, spec, "fp32", estimator)
        return (grid.values(grid.codes(values_OGC)) - values_OGC).abs().pow(2.4).sum(-1)

    assert bool((errors("mse") <= errors("minmax")).all())
    lowest, highest = values_OGC.amin(-1), values_OGC.amax(-1)
    # One group, by hand: every shrink from 1.00 down to 0.21 in steps of 0.01.
    amax = max(-float(lowest[2, 1]), float(highest[2, 1]))
    tried = []
    for step in range(80):
        scale = float(torch.tensor(amax * (1 - step / 100) / 7.5).float())
        codes = (values_OGC[2, 1] / scale).clamp(-8, 7).round()
        tried.append(float((codes * scale - values_OGC[2, 1]).abs().pow(2.4).sum()))
    assert float(errors("mse")[2, 1]) == pytest.approx(min(tried), rel=1e-6)


def test_percentile_leaves_out_the_outermost() -> None:
    values_OGC = torch.linspace(-1, 1, 4096, dtype=torch.float64).reshape(1, 1, -1).clone()
    values_OGC[0, 0, 7], values_OGC[0, 0, 9] = 50.0, -70.0
    grid = fit_grid(values_OGC, FORMATS["int8"], "fp32", "percentile")
    assert float(grid.scales_OG[0, 0]) == pytest.approx(1 / 127.5, rel=2e-3)


@pytest.mark.parametrize("name", ["int8", "int8-asym", "int4-g64-asym", "fp8-g128"])
@pytest.mark.parametrize(
    ("block_rows", "estimator"),
    [(1, "minmax"), (4, "minmax"), (5, "mse"), (128, "minmax"), (None, "percentile")],
)
def test_blocks_are_groups_of_their_own(
    name: str, block_rows: int | None, estimator: RangeEstimator
) -> None:
    spec = FORMATS[name]
    generator = torch.Generator().manual_seed(5)
    weight_OI = torch.randn(13, 256, generator=generator)
    weight_OI *= torch.rand(13, 1, generator=generator) * 4
    grid = fit_shared_grid(weight_OI, spec, "bf16", block_rows, estimator)
    columns = spec.group_size or 256
    assert grid.scales_OG.shape == (13, 256 // columns)
    rows = block_rows or 13
    for first in range(0, 13, rows):
        for group in range(256 // columns):
            where = slice(first, first + rows), slice(group * columns, (group + 1) * columns)
            alone = fit_grid(weight_OI[where].reshape(1, 1, -1), spec, "bf16", estimator)
            assert bool((grid.scales_OG[where[0], group] == alone.scales_OG).all())
            assert bool((grid.zeros_OG[where[0], group] == alone.zeros_OG).all())
    if block_rows == 1:
        own = fit_grid(grouped(weight_OI, spec.group_size), spec, "bf16", estimator)
        assert bool((own.scales_OG == grid.scales_OG).all())
