"""Integer steps against one row at a time (tests/references/progressive.py), and what any of them
must be: exact products that are found again, for every method that makes them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paredown.compress.fit_grid import RangeEstimator, fit_grid
from paredown.compress.grid import grouped
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.hqq import HQQ
from paredown.compress.quantize.method import LayerTarget, Moments, Quantizer
from paredown.compress.quantize.rtn import RTN
from paredown.errors import CheckpointError
from paredown.formats.integer_steps import integer_steps, steps_of
from paredown.formats.stored.compressed_tensors.form import encode, written_form
from paredown.formats.table import STEP_FORMATS
from paredown.spec.weight import ScaleDType, WeightSpec
from references.progressive import progressive_row

NAMES = ["w4a8-g32-qoq", "w4a8-g32-asym-qoq"]
DTYPES = st.sampled_from(["fp32", "bf16", "fp16"])
QUANTIZERS: list[Quantizer] = [
    RTN(),
    RTN(range="mse"),
    RTN(range="percentile"),
    RTN(per_tensor=True),
    HQQ(),
    GPTQ(),
    GPTQ(static_groups=False),
    GPTQ(act_order=False, static_groups=False, range="minmax"),
]


def random_weight(seed: int, num_rows: int, num_columns: int) -> Tensor:
    """Groups of different sizes and middles, a few large values, and zeros."""
    generator = torch.Generator().manual_seed(seed)
    weight_OI = torch.randn(num_rows, num_columns, generator=generator, dtype=torch.float64)
    groups_OGC = weight_OI.view(num_rows, -1, 32)
    groups_OGC *= torch.randn(num_rows, num_columns // 32, 1, generator=generator).exp()
    groups_OGC += torch.randn(num_rows, num_columns // 32, 1, generator=generator)
    groups_OGC[0, 0] = 0
    weight_OI[-1] = weight_OI[-1].abs()
    return weight_OI


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    estimator=st.sampled_from(["minmax", "mse"]),
    dtype=DTYPES,
    seed=st.integers(0, 2**32 - 1),
    log_scale=st.integers(-30, 12),
    num_groups=st.integers(1, 4),
)
def test_steps_are_those_of_one_row_at_a_time(
    name: str,
    estimator: RangeEstimator,
    dtype: ScaleDType,
    seed: int,
    log_scale: int,
    num_groups: int,
) -> None:
    spec = STEP_FORMATS[name]
    weight_OI = random_weight(seed, 3, 32 * num_groups) * 2.0**log_scale
    values_OGC = grouped(weight_OI, 32)
    grid = fit_grid(values_OGC, spec, dtype, estimator)
    assert grid.row_scales_O1 is not None
    for row, groups in enumerate(values_OGC.tolist()):
        row_scale, scales, zeros = progressive_row(groups, spec, dtype, estimator == "mse")
        assert grid.row_scales_O1[row].tolist() == [row_scale]
        assert grid.scales_OG[row].tolist() == scales
        assert (grid.zeros_OG[row] + 8).tolist() == zeros


def moments_of(num_columns: int) -> Moments:
    generator = torch.Generator().manual_seed(1)
    x_NI = torch.randn(300, num_columns, generator=generator)
    x_NI = x_NI @ (torch.randn(num_columns, num_columns, generator=generator) + 3)
    return Moments(hessian_II=x_NI.T @ x_NI / 150, num_rows=300)


@pytest.mark.parametrize("name", ["w4a8-g32-qoq", "w4a8-g128-asym-qoq"])
@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=repr)
def test_what_any_method_makes_has_steps_that_are_found(name: str, quantizer: Quantizer) -> None:
    spec = STEP_FORMATS[name]
    weight_OI = random_weight(2, 3, 256).float()
    for dtype in ("fp32", "bf16", "fp16"):
        target = LayerTarget(spec=spec, scale_dtype=dtype)
        weight = quantizer.quantize(weight_OI, target, moments_of(256)).weight
        found = integer_steps(weight)
        assert found is not None
        assert found[1].shape == (3, 256 // spec.group_size)
        # What was stored is what was meant.
        again = written_form(spec).decode(encode(weight))
        assert np.array_equal(again.scales_OG, weight.scales_OG)
        assert np.array_equal(again.dequantize(), weight.dequantize())


@settings(max_examples=60, deadline=None)
@given(
    dtype=DTYPES,
    seed=st.integers(0, 2**32 - 1),
    exponents=st.lists(st.integers(-149, 126), min_size=4, max_size=4),
)
def test_weights_of_any_size_have_exact_steps(
    dtype: ScaleDType, seed: int, exponents: list[int]
) -> None:
    """From the smallest to the largest floats, in one row."""
    values_GC = np.random.default_rng(seed).uniform(-2, 2, (4, 32))
    values_GC *= np.exp2(exponents)[:, None]
    values_OGC = torch.from_numpy(values_GC).float()[None]
    grid = fit_grid(values_OGC, STEP_FORMATS["w4a8-g32-asym-qoq"], dtype)
    assert steps_of(grid.scales_OG.numpy()) is not None


@pytest.mark.parametrize("name", NAMES)
def test_steps_lose_less_than_rounding_every_group_alone(name: str) -> None:
    """In squares of errors of normal weights, beside the whole range of each group."""
    spec = STEP_FORMATS[name]
    generator = torch.Generator().manual_seed(3)
    weight_OI = torch.randn(64, 512, generator=generator)
    alone = WeightSpec(dtype="int4", group_size=32, symmetric=spec.symmetric)

    def error(one: WeightSpec, estimator: RangeEstimator) -> float:
        target = LayerTarget(spec=one, scale_dtype="bf16")
        weight = RTN(range=estimator).quantize(weight_OI, target, None).weight
        return float(np.square(weight.dequantize() - weight_OI.numpy()).sum())

    assert error(spec, "mse") < error(spec, "minmax") < error(alone, "minmax")
    assert error(spec, "mse") < 1.03 * error(alone, "mse")


def test_rows_do_not_know_each_other() -> None:
    spec = STEP_FORMATS["w4a8-g32-qoq"]
    weight_OI = random_weight(4, 6, 4096).float()
    whole = RTN().quantize(weight_OI, LayerTarget(spec=spec, scale_dtype="bf16"), None).weight
    alone = RTN().quantize(weight_OI[4:5], LayerTarget(spec=spec, scale_dtype="bf16"), None).weight
    assert np.array_equal(whole.scales_OG[4:5], alone.scales_OG)
    assert np.array_equal(whole.values_OI[4:5], alone.values_OI)


def test_weights_that_are_not_finite_are_refused() -> None:
    weight_OI = torch.ones(2, 64)
    weight_OI[1, 40] = torch.nan
    target = LayerTarget(spec=STEP_FORMATS["w4a8-g32-qoq"], scale_dtype="bf16")
    for quantizer in (RTN(), HQQ()):
        with pytest.raises(CheckpointError, match="finite"):
            quantizer.quantize(weight_OI, target, None)


def test_transforms_search_without_steps() -> None:
    target = LayerTarget(spec=STEP_FORMATS["w4a8-g32-qoq"], scale_dtype="bf16")
    assert target.searched.spec.name == "w4a8-g32"
    assert target.searched.searched == target.searched
