"""HQQ against one group at a time in Python floats, and against round to nearest."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.compress.fit_grid import fit_grid
from paredown.compress.grid import grouped
from paredown.compress.quantize.hqq import HQQ, mean_errors, shrink
from paredown.compress.quantize.method import LayerTarget
from paredown.compress.quantize.rtn import RTN
from paredown.errors import CheckpointError
from paredown.formats.table import FORMATS
from paredown.spec.weight import WeightSpec

INT3 = WeightSpec(dtype="int3")
INT3_ASYM = WeightSpec(dtype="int3", symmetric=False)
SPECS = [INT3, INT3_ASYM, FORMATS["int3-g64-asym"], FORMATS["int4-g32"], FORMATS["int2-g64-asym"]]


def heavy_tailed(num_rows: int, num_columns: int, seed: int) -> torch.Tensor:
    """Weights of a usual size of which a few are large."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_t(4, (num_rows, num_columns)) * 0.02)


def reference_group(values: list[float], spec: WeightSpec, scale: float, zero: float, method: HQQ):
    """Scale and zero point of one group, from its first ones; scales in float32."""
    half = 2 ** (spec.bits - 1)
    low, high = -half, half - 1

    def encode(value: float, scale: float, zero: float) -> int:
        return round(min(max(value / scale + zero, low), high))

    def mean_error(scale: float, zero: float) -> float:
        errors = [abs((encode(v, scale, zero) - zero) * scale - v) for v in values]
        return sum(errors) / len(errors)

    first, beta = scale, method.beta
    best, least = (scale, zero), mean_error(scale, zero)
    for _ in range(method.num_iterations):
        codes = [encode(value, scale, zero) for value in values]
        wanted = []
        for value, code in zip(values, codes, strict=True):
            error = (value - (code - zero) * scale) / first
            large = abs(error) - abs(error) ** (method.norm - 1) / beta if error else 0.0
            wanted.append(value - np.sign(error) * max(0.0, large) * first)
        if not spec.symmetric:
            shifts = [code - w / scale for code, w in zip(codes, wanted, strict=True)]
            zero = float(round(min(max(sum(shifts) / len(shifts), low), high)))
        products = sum((code - zero) * w for code, w in zip(codes, wanted, strict=True))
        if products > 0:
            scale = products / sum((code - zero) ** 2 for code in codes)
            scale = float(np.float32(scale))
        beta *= method.kappa
        if mean_error(scale, zero) < least:
            best, least = (scale, zero), mean_error(scale, zero)
    return best


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_equals_the_reference_group_by_group(spec: WeightSpec) -> None:
    weight_OI = heavy_tailed(4, 128, seed=1)
    values_OGC = grouped(weight_OI, spec.group_size)
    first = fit_grid(values_OGC, spec, "fp32", "mse")
    method = HQQ(num_iterations=20)
    grid = method.fit(values_OGC, first)
    moved = 0
    for row in range(values_OGC.shape[0]):
        for group in range(values_OGC.shape[1]):
            scale, zero = reference_group(
                values_OGC[row, group].tolist(),
                spec,
                float(first.scales_OG[row, group]),
                float(first.zeros_OG[row, group]),
                method,
            )
            assert float(grid.zeros_OG[row, group]) == zero
            assert float(grid.scales_OG[row, group]) == pytest.approx(scale, rel=1e-6)
            moved += scale != float(first.scales_OG[row, group])
    assert moved > 0.8 * first.scales_OG.numel()


@settings(max_examples=40, deadline=None)
@given(
    spec=st.sampled_from(SPECS),
    seed=st.integers(0, 2**32 - 1),
    log_scale=st.integers(-20, 10),
)
def test_no_group_is_worse_than_its_first_grid(spec: WeightSpec, seed: int, log_scale: int) -> None:
    weight_OI = heavy_tailed(4, 128, seed).float() * 2.0**log_scale
    weight_OI[1] = 0
    weight_OI[2] = weight_OI[2].abs()
    values_OGC = grouped(weight_OI, spec.group_size)
    first = fit_grid(values_OGC, spec, "bf16", "mse")
    grid = HQQ().fit(values_OGC, first)
    assert bool((mean_errors(values_OGC, grid) <= mean_errors(values_OGC, first)).all())
    assert bool((grid.scales_OG == grid.scales_OG.bfloat16().float()).all())
    assert bool((grid.scales_OG > 0).all())
    weight = HQQ().quantize(weight_OI, LayerTarget(spec=spec, scale_dtype="bf16"), None).weight
    # The same grid in the format that is stored: unsigned codes and zero points.
    expected_OI = grid.values(grid.codes(values_OGC)).reshape(weight_OI.shape)
    np.testing.assert_array_equal(weight.at_work(), expected_OI.numpy())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), power=st.integers(-8, 8))
def test_the_scale_of_the_weights_does_not_matter(seed: int, power: int) -> None:
    """beta is in steps of the grid: powers of two pass through to the bit."""
    values_OGC = grouped(heavy_tailed(2, 64, seed).float(), 32)
    spec = FORMATS["int3-g32-asym"]
    one = HQQ().fit(values_OGC, fit_grid(values_OGC, spec, "bf16", "mse"))
    scaled_OGC = values_OGC * 2.0**power
    other = HQQ().fit(scaled_OGC, fit_grid(scaled_OGC, spec, "bf16", "mse"))
    assert torch.equal(one.zeros_OG, other.zeros_OG)
    assert torch.equal(one.scales_OG * 2.0**power, other.scales_OG)


def test_shrinkage_forgives_the_large_errors_alone() -> None:
    """Errors below beta^(1 / (p - 2)) = 0.17 become zero, large ones stay nearly what they were."""
    errors = torch.tensor([0.0, 0.17, -0.17, 0.18, 0.5, -3.0], dtype=torch.float64)
    shrunk = shrink(errors, 0.7, 10.0)
    assert shrunk[:3].tolist() == [0, 0, 0]
    assert float(shrunk[3]) == pytest.approx(0.18 - 0.1 * 0.18**-0.3)
    assert float(shrunk[3]) > 0
    assert float(shrunk[5]) == pytest.approx(-(3 - 0.1 * 3**-0.3))
    assert bool((shrunk.abs() <= errors.abs()).all())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_beats_round_to_nearest_on_heavy_tails(spec: WeightSpec) -> None:
    weight_OI = heavy_tailed(16, 256, seed=7).float()
    target = LayerTarget(spec=spec, scale_dtype="bf16")

    def error(method: HQQ | RTN) -> float:
        weight = method.quantize(weight_OI, target, None).weight
        return float(np.abs(weight.at_work() - weight_OI.numpy()).mean())

    assert error(HQQ()) < 0.97 * error(RTN())
    assert error(HQQ()) < error(RTN(range="mse"))


def test_weights_that_are_not_finite_are_refused() -> None:
    weight_OI = heavy_tailed(2, 64, seed=0).float()
    weight_OI[1, 3] = torch.nan
    with pytest.raises(CheckpointError, match="not finite"):
        HQQ().quantize(weight_OI, LayerTarget(spec=FORMATS["int3-g64"], scale_dtype="bf16"), None)
