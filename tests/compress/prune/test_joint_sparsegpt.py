"""SparseGPT and GPTQ in one loop, against the paper's algorithm with both errors
(tests/references/sparsegpt.py)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_layers import moments_of, random_layer
from paredown.compress.fit_grid import fit_grid
from paredown.compress.grid import grouped
from paredown.compress.prune.joint_sparsegpt import JointSparseGPT
from paredown.compress.prune.loss_order import loss_order
from paredown.compress.prune.magnitude import by_magnitude
from paredown.compress.prune.method import Seen
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.compress.prune.sparsegpt import ColumnOrder, SparseGPT
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.method import LayerTarget, Moments
from paredown.compress.quantize.rtn import RTN
from paredown.errors import ConfigError, UnsupportedError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.table import FORMATS, STEP_FORMATS
from references.gptq import nearest
from references.sparsegpt import sparsegpt_reference

PATTERNS: tuple[Pattern, ...] = (Share(share=0.5), NOfM(n=2, m=4), NOfM(n=8, m=16))
NAMES = ("int4-g32", "int4-g32-asym", "int3-g32-asym", "int8", "fp8")


def target_of(name: str) -> LayerTarget:
    return LayerTarget(spec=(FORMATS | STEP_FORMATS)[name], scale_dtype="fp32")


@settings(max_examples=15, deadline=None)
@given(
    pattern=st.sampled_from(PATTERNS),
    name=st.sampled_from(NAMES),
    order=st.sampled_from(["natural", "loss"]),
    num_rows=st.integers(1, 4),
    num_groups=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_values_are_those_of_the_papers_algorithm(
    pattern: Pattern, name: str, order: ColumnOrder, num_rows: int, num_groups: int, seed: int
) -> None:
    weight_OI, x_NI = random_layer(num_rows, 32 * num_groups, seed)
    moments = moments_of(x_NI)
    target = target_of(name)
    pruner = SparseGPT(order=order, block_columns=24)
    method = JointSparseGPT(pruner=pruner, quantizer=GPTQ(range="minmax"))
    done = method.compress(weight_OI, pattern, target, moments)
    # The grids are those of the weight that is only pruned.
    alone_OI = pruner.prune(weight_OI, pattern, Seen(moments=moments)).values_OI
    grid = fit_grid(grouped(alone_OI, target.spec.group_size), target.spec, "fp32", "minmax")
    size = weight_OI.shape[1] // grid.scales_OG.shape[1]

    def rounded(column: int, values_O: np.ndarray) -> np.ndarray:
        found = []
        for row, value in enumerate(values_O):
            scale = float(grid.scales_OG[row, column // size])
            zero = int(grid.zeros_OG[row, column // size])
            found.append((nearest(float(value), scale, zero, target.spec) - zero) * scale)
        return np.array(found)

    columns = list(range(weight_OI.shape[1]))
    if order == "loss":
        diagonal_I = moments.hessian_II.diagonal()
        columns = loss_order(weight_OI, diagonal_I, pattern, 24).flip(0).tolist()
    values_OI, mask_OI = sparsegpt_reference(
        weight_OI.numpy(),
        moments.hessian_II.numpy(),
        pattern,
        columns,
        block_columns=24,
        rounded=rounded,
    )
    np.testing.assert_array_equal(done.mask_OI.numpy(), mask_OI)
    np.testing.assert_allclose(done.quantized.values(), values_OI, rtol=1e-5, atol=1e-9)
    change_OI = weight_OI - done.quantized.values().double()
    trace = 0.5 * torch.trace(change_OI @ moments.hessian_II @ change_OI.T).item()
    assert done.quantized.loss == pytest.approx(trace, rel=1e-4)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [(PATTERNS[0], "int4-g32"), *((PATTERNS[1], name) for name in (*NAMES, "w4a8-g32-qoq"))],
)
def test_it_loses_less_than_rounding_to_nearest_after_pruning(pattern: Pattern, name: str) -> None:
    weight_OI, x_NI = random_layer(16, 96, seed=4)
    moments = moments_of(x_NI)
    method = JointSparseGPT(pruner=SparseGPT(), quantizer=GPTQ())
    done = method.compress(weight_OI, pattern, target_of(name), moments)
    values_OI = done.quantized.values()
    assert not values_OI[~done.mask_OI].any()
    pruned = SparseGPT().prune(weight_OI, pattern, Seen(moments=moments))
    assert (~done.mask_OI).sum() == (~pruned.mask_OI).sum()
    nearest_OI = RTN(range="mse").quantize(pruned.values_OI, target_of(name), None).values()
    change_OI = weight_OI - nearest_OI.double()
    trace = 0.5 * torch.trace(change_OI @ moments.hessian_II @ change_OI.T).item()
    assert done.quantized.loss is not None
    if name == "int8":
        assert done.quantized.loss == pytest.approx(pruned.loss, rel=0.1)
    else:
        assert done.quantized.loss < trace


def test_a_grid_that_is_given_is_used() -> None:
    weight_OI, x_NI = random_layer(8, 64, seed=5)
    moments = moments_of(x_NI)
    plain = target_of("int4-g32")
    wide = fit_grid(grouped(2 * weight_OI, 32), plain.spec, "fp32")
    target = LayerTarget(spec=plain.spec, scale_dtype="fp32", grid=wide)
    method = JointSparseGPT(pruner=SparseGPT(), quantizer=GPTQ())
    weight = method.compress(weight_OI, PATTERNS[1], target, moments).quantized.weight
    assert isinstance(weight, GridWeight)
    np.testing.assert_array_equal(weight.scales_OG, wide.scales_OG.float())


def test_dead_columns_and_inputs_that_were_not_seen_are_told() -> None:
    weight_OI, x_NI = random_layer(8, 64, seed=6)
    moments = moments_of(x_NI)
    method = JointSparseGPT(pruner=SparseGPT(), quantizer=GPTQ())
    dead_II = moments.hessian_II.clone()
    dead_II[5] = dead_II[:, 5] = 0
    for pattern in PATTERNS:
        dead = Moments(hessian_II=dead_II, num_rows=9)
        done = method.compress(weight_OI, pattern, target_of("int4-g32-asym"), dead)
        assert done.quantized.notes == ("1 columns with no input but zeros became 0",)
        assert not done.quantized.values()[:, 5].any()
        unseen = Moments(hessian_II=torch.zeros(64, 64), num_rows=0)
        done = method.compress(weight_OI, pattern, target_of("int4-g32-asym"), unseen)
        assert torch.equal(done.mask_OI, by_magnitude(weight_OI, pattern).mask_OI)
        assert not done.quantized.values()[~done.mask_OI].any()
        first, second = done.quantized.notes
        assert first.startswith("pruned by magnitude instead: no input")
        assert second.startswith("rounded to nearest instead: no input")


def test_columns_that_do_not_fit_are_refused() -> None:
    weight_OI, x_NI = random_layer(4, 36, seed=7)
    moments = moments_of(x_NI)
    method = JointSparseGPT(pruner=SparseGPT(), quantizer=GPTQ())
    with pytest.raises(UnsupportedError, match="groups of 32"):
        method.compress(weight_OI, PATTERNS[0], target_of("int4-g32"), moments)
    with pytest.raises(ConfigError, match="36 columns for 8of16"):
        method.compress(weight_OI, PATTERNS[2], target_of("int8"), moments)
