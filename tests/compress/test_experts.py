"""Calibration and compression of mixtures of experts: what each expert is shown, what becomes of
one that is shown little."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from drivers.seen_by_rtn import SeenByRTN
from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from fakes.unseen_experts import leave_out_experts
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.expert_inputs import shrunk
from paredown.compress.calibrate.memory import predict_memory
from paredown.compress.compress import compress
from paredown.compress.quantize.aqlm import AQLM
from paredown.compress.quantize.awq import AWQ
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.method import LayerTarget, Moments
from paredown.compress.quantize.rescale import fitting, rescale
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.schemes import resolve_schemes, scheme_rows
from paredown.compress.steps import QuantizeStep
from paredown.errors import ConfigError
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import input_point
from paredown.models.decoder.smoothing import norm_pairs, smoothing_pairs
from paredown.spec.mlp import Mlp
from paredown.spec.weight import WeightSpec
from references.plain_block import tiny_block

INT4 = FORMATS["int4-g32"]
FEW_CODEBOOKS = Recipe(
    name="aqlm",
    steps=(
        QuantizeStep(
            quantizer=AQLM(num_codebooks=1, in_group_size=4, max_rounds=1),
            spec=WeightSpec(dtype="fp16"),
        ),
    ),
)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (6, 24)), source="random tokens")


@pytest.fixture
def qwen(tmp_path: Path) -> Checkpoint:
    VARIANTS["qwen2-moe"](tmp_path / "in", torch.float32, 0)
    return Checkpoint.open(tmp_path / "in")


def naive_moments(
    source: Checkpoint, written: Checkpoint, windows: np.ndarray, layer: int, role: str
) -> Tensor:
    """2/N sum x x^T of the rows that a linear layer of an expert reads, one token at a time; what
    comes before is as written, and `role`'s own expert as in the source where it comes later."""
    decoder = Decoder.from_checkpoint(written)
    plain = Decoder.from_checkpoint(source).layers[layer]
    for name in source.spec.linear_shapes(layer):
        owner, _, own = name.rpartition(".")
        is_later = own == "down" or (not role.endswith("down") and own in ("gate", "up"))
        if is_later and owner:
            module = decoder.layers[layer].get_submodule(name)
            module.weight.data = plain.get_submodule(name).weight.data
    rows = []

    def tap(point: str, x: Tensor) -> Tensor:
        if point == input_point(role):
            rows.extend(x.double())
        return x

    decoder.layers[layer].tap = tap
    with torch.no_grad():
        for window in windows:
            decoder(torch.from_numpy(window)[None])
    return 2 * torch.stack([torch.outer(row, row) for row in rows]).mean(0)


def test_each_expert_has_the_moments_of_its_tokens(
    qwen: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    step = QuantizeStep(quantizer=SeenByRTN(), spec=INT4)
    SeenByRTN.seen.clear()
    compress(qwen, tmp_path / "out", Recipe(name="seen", steps=(step,)), calibration=calibration)
    written = Checkpoint.open(tmp_path / "out")
    seen = iter(SeenByRTN.seen)
    kinds = ("q", "k", "v", "o", "gate", "up", "down")
    for layer in range(2):
        roles = list(qwen.spec.linear_shapes(layer))
        by_role = {
            role: next(seen) for kind in kinds for role in roles if role.split(".")[-1] == kind
        }
        gate, up = by_role["experts.3.gate"], by_role["experts.3.up"]
        assert torch.equal(gate.hessian_II, up.hessian_II)
        num_rows = [by_role[f"experts.{expert}.gate"].num_rows for expert in range(6)]
        assert sum(num_rows) == 2 * calibration.windows_NT.size
        assert by_role["shared.gate"].num_rows == calibration.windows_NT.size
        for role in ("experts.3.up", "experts.0.down"):
            plain_II = naive_moments(qwen, written, calibration.windows_NT, layer, role)
            num_columns = plain_II.shape[0]
            added = 0.5 * num_columns / by_role[role].num_rows * plain_II.diagonal().mean()
            expected_II = plain_II + added * torch.eye(num_columns)
            error = (by_role[role].hessian_II - expected_II).abs().max()
            assert error <= 1e-4 * expected_II.abs().max()


@pytest.mark.parametrize("columns", [32, 96])
def test_gptq_without_any_token_is_round_to_nearest(columns: int) -> None:
    weight_OI = torch.randn(16, columns, generator=torch.Generator().manual_seed(0))
    target = LayerTarget(spec=INT4, scale_dtype="bf16")
    blind = GPTQ().quantize(weight_OI, target, shrunk(None, columns)).weight
    nearest = RTN(range="mse").quantize(weight_OI, target, None).weight
    assert np.array_equal(blind.values_OI, nearest.values_OI)
    assert np.array_equal(blind.scales_OG, nearest.scales_OG)


def test_shrinking_fades_as_tokens_come() -> None:
    x_NI = torch.randn(4000, 16, generator=torch.Generator().manual_seed(1))
    added = []
    for num_rows in (4, 40, 4000):
        part_NI = x_NI[:num_rows]
        moments = Moments(hessian_II=2 / num_rows * part_NI.T @ part_NI, num_rows=num_rows)
        difference_II = shrunk(moments, 16).hessian_II - moments.hessian_II
        expected_II = difference_II.diagonal().mean() * torch.eye(16)
        assert torch.allclose(difference_II, expected_II, rtol=1e-3, atol=1e-6)
        added.append(float(difference_II[0, 0]))
    assert added[0] > 5 * added[1] > 400 * added[2] > 0


@pytest.mark.parametrize(
    ("recipe", "instead"),
    [
        ("gptq-int4-g32", "round to nearest"),
        ("gptq-w8a8-static", "round to nearest, the input scale of all experts"),
        ("w8a8-static", "the input scale of all experts"),
        ("awq-gptq-int4-g32", "round to nearest"),
        ("smoothquant-w8a8-static", "the input scale of all experts"),
    ],
)
def test_experts_that_saw_no_token_are_named_and_rounded_to_nearest(
    recipe: str, instead: str, calibration: Calibration, tmp_path: Path
) -> None:
    leave_out_experts(tmp_path / "in", "qwen3_moe", [1, 4, 5])
    source = Checkpoint.open(tmp_path / "in")
    told: list[tuple[str, ...]] = []
    result = compress(
        source,
        tmp_path / "out",
        recipe,
        calibration=calibration,
        finish=lambda folder, notes: told.append(notes),
    )
    for layer in range(2):
        assert f"layer {layer}: experts.1, 4-5 saw no token: {instead}" in result.notes
        if recipe.startswith("awq"):
            unscaled = "experts.1, 4-5 saw no token: neither scaled nor clipped"
            assert f"layer {layer}: AWQ: {unscaled}" in result.notes
    assert told == [result.notes]
    written = Checkpoint.open(tmp_path / "out")
    scales = {written.linear(f"experts.{expert}.gate", 1).input_scale for expert in (1, 4, 5)}
    assert len(scales) == 1
    if recipe == "gptq-int4-g32":
        target = LayerTarget(spec=INT4, scale_dtype="fp32")
        for role in ("experts.4.gate", "experts.5.down"):
            weight_OI = torch.from_numpy(source.linear(role, 1).dequantize())
            nearest = RTN(range="mse").quantize(weight_OI, target, None).weight
            assert np.array_equal(written.linear(role, 1).values_OI, nearest.values_OI)


def test_few_tokens_are_told_of(calibration: Calibration, tmp_path: Path) -> None:
    leave_out_experts(tmp_path / "in", "qwen3_moe", [1, 4, 5], num_experts_per_tok=1)
    source = Checkpoint.open(tmp_path / "in")
    few = replace(calibration, windows_NT=calibration.windows_NT[:1])
    result = compress(source, tmp_path / "out", "gptq-int4-g32", calibration=few)
    told = [note for note in result.notes if "fewer tokens than columns" in note]
    assert told
    assert all("a Hessian shrunk towards round to nearest" in note for note in told)


@pytest.mark.parametrize(
    ("variant", "recipe"),
    [
        ("mixtral", "gptq-int4-g32"),
        ("mixtral", "awq-int4-g32"),
        ("qwen3-moe-dense-first", "awq-gptq-int4-g32"),
        ("qwen3-moe-dense-first", "smoothquant-w8a8"),
        ("qwen2-moe", "awq-int4-g32"),
        ("qwen2-moe", "smoothquant-w8a8"),
        ("qwen2-moe", "hqq-int4-g32"),
        ("qwen2-moe", "fp8"),
        ("qwen2-moe", "llm-int8"),
        ("qwen2-moe", FEW_CODEBOOKS),
        ("qwen2-moe", "gptq-int4-g32-head-int8-kv-int8-static"),
    ],
)
def test_every_method_takes_experts(
    variant: str, recipe: str | Recipe, calibration: Calibration, tmp_path: Path
) -> None:
    VARIANTS[variant](tmp_path / "in", torch.bfloat16, 0)
    source = Checkpoint.open(tmp_path / "in")
    result = compress(source, tmp_path / "out", recipe, calibration=calibration)
    written = Checkpoint.open(tmp_path / "out")
    assert len(written.forms) == result.num_quantized
    routers = {source.names.router(role, 1) for role in source.spec.router_shapes(1)}
    section = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    left_out = section.get("ignore") or section["linear_weights_not_to_quantize"]
    assert all(any(name in one for one in left_out) for name in routers)
    for name in routers:
        assert written.tensors[f"{name}.weight"].dtype == "BF16"
    ids = torch.from_numpy(calibration.windows_NT[:2])
    with torch.no_grad():
        expected = Decoder.from_checkpoint(source)(ids)
        error = Decoder.from_checkpoint(written)(ids) - expected
    # Random experts of few columns: what matters is that nothing is in another's place.
    assert error.square().mean() < 0.5 * expected.square().mean()


def result_of(source: Checkpoint, recipe: Recipe) -> dict[tuple[str, str], tuple[str, int]]:
    rows = scheme_rows(resolve_schemes(recipe, source), source)
    return {(row.layers, row.roles): (row.format, row.num_modules) for row in rows}


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (("layers",), {("0-1", "experts.gate, experts.up, experts.down"): ("int4-g32", 36)}),
        (("experts",), {("0-1", "experts.gate, experts.up, experts.down"): ("int4-g32", 36)}),
        (("shared",), {("0-1", "shared.gate, shared.up, shared.down"): ("int4-g32", 6)}),
        (("experts.gate",), {("0-1", "experts.gate"): ("int4-g32", 12)}),
        (("down",), {("0-1", "experts.down, shared.down"): ("int4-g32", 14)}),
        (("experts.5.up",), {("0-1", "experts.5.up"): ("int4-g32", 2)}),
        (
            ("re:.*layers.*experts.*",),
            {("0-1", "experts.gate, experts.up, experts.down"): ("int4-g32", 36)},
        ),
        (
            (r"re:.*layers\.1\..*experts\.[0-2]\..*",),
            {("1", "experts.0-2.gate, experts.0-2.up, experts.0-2.down"): ("int4-g32", 9)},
        ),
        (("model.layers.0.mlp.experts.3.up_proj",), {("0", "experts.3.up"): ("int4-g32", 1)}),
    ],
)
def test_targets(
    targets: tuple[str, ...], expected: dict[tuple[str, str], tuple[str, int]], qwen: Checkpoint
) -> None:
    step = QuantizeStep(quantizer=RTN(), spec=INT4, targets=targets)
    rows = result_of(qwen, Recipe(name="x", steps=(step,)))
    found = {
        (layers, roles): what for (layers, roles), what in rows.items() if what[0] == "int4-g32"
    }
    if targets == ("layers",):
        everything = (
            "q, k, v, o, experts.gate, experts.up, experts.down, shared.gate, shared.up, "
            "shared.down"
        )
        assert found == {("0-1", everything): ("int4-g32", 50)}
    else:
        assert found == expected
    assert any("router, " in roles and what[0] == "as it is" for (_, roles), what in rows.items())
    total = sum(num_modules for _, num_modules in rows.values())
    assert total == 2 * (4 + 18 + 3 + 2) + 1


def test_a_router_is_no_target(qwen: Checkpoint) -> None:
    for target in ("router", "model.layers.0.mlp.gate", "experts.6.up"):
        step = QuantizeStep(quantizer=RTN(), spec=INT4, targets=(target,))
        with pytest.raises(ConfigError, match="matches no linear layer"):
            resolve_schemes(Recipe(name="x", steps=(step,)), qwen)


@pytest.mark.parametrize("variant", ["mixtral", "qwen2-moe", "qwen3-moe"])
def test_smoothing_before_experts_moves_the_router_exactly(variant: str, tmp_path: Path) -> None:
    """Whatever scales are asked for: in bf16 every token goes where it went, with the same
    weight."""
    block = tiny_block(variant, tmp_path)
    layer, spec = block.layer, block.spec
    pair = norm_pairs(layer.spec)[1]
    assert pair.followers == tuple(spec.router_shapes(layer.index))
    for role in ("mlp_norm", *pair.followers):
        weight = layer.get_submodule(role).weight
        weight.data = weight.data.to(torch.bfloat16).float()

    def outputs() -> tuple[Tensor, Tensor]:
        x_BTD = layer.mlp_norm(block.batches[0])
        logits = [layer.apply_linear(role, x_BTD) for role in pair.followers]
        return torch.cat(logits, -1), layer.mlp(x_BTD)

    logits, expected = outputs()
    wanted_P = 0.01 + 3 * torch.rand(spec.hidden_size)
    scales_P = rescale(layer, pair, fitting(pair, wanted_P), "bf16")
    assert torch.equal(scales_P.log2(), scales_P.log2().round())
    assert bool(((scales_P / wanted_P).log2().abs() <= 0.5 + 1e-6).all())
    for role in pair.followers:
        weight = layer.get_submodule(role).weight
        assert torch.equal(weight, weight.to(torch.bfloat16).float())
    same_logits, same = outputs()
    assert torch.equal(same_logits, logits)
    assert torch.allclose(same, expected, rtol=1e-4, atol=1e-4)


def test_pairs_of_experts(tmp_path: Path) -> None:
    VARIANTS["qwen2-moe-every-second"](tmp_path, torch.float32, 0)
    spec = Checkpoint.open(tmp_path).spec
    dense = [pair.name for pair in smoothing_pairs(spec.layers[0])]
    assert dense[2:] == ["mlp_norm -> gate, up", "up -> down"]
    moe = smoothing_pairs(spec.layers[1])
    experts = "experts.gate, experts.up, shared.gate, shared.up"
    assert moe[2].name == f"mlp_norm -> {experts}"
    assert moe[2].takes_powers_of_two
    assert len(moe[2].consumers) == 14
    inner = [pair.name for pair in moe[3:]]
    assert inner == [
        f"{one}.up -> {one}.down" for one in (*map("experts.{}".format, range(6)), "shared")
    ]


def test_awq_makes_the_loss_of_experts_smaller(tmp_path: Path) -> None:
    """Columns of the experts' inputs are of very different size, which is what AWQ is for."""
    losses = {}
    for transform in (None, AWQ(clip=False)):
        block = tiny_block("qwen2-moe", tmp_path / str(transform is None))
        layer = block.layer
        with torch.no_grad():
            layer.mlp_norm.weight[:8] *= 30
            layer.get_submodule("router").weight[:, :8] /= 30
        target = LayerTarget(spec=INT4, scale_dtype="fp32")
        roles = [role for role in block.spec.linear_shapes(0) if "experts" in role]
        expected = block.outputs()
        if transform is not None:
            transform.apply(block, dict.fromkeys(roles, target))
            assert torch.allclose(block.outputs(), expected, rtol=1e-3, atol=1e-3)
        for role in roles:
            module = layer.get_submodule(role)
            done = RTN().quantize(module.weight.data, target, None)
            module.weight.data = torch.from_numpy(done.weight.dequantize())
        losses[transform is None] = float((block.outputs() - expected).square().mean())
    assert losses[False] < 0.8 * losses[True]


def test_memory_counts_all_experts(qwen: Checkpoint) -> None:
    spec = qwen.spec
    mlp = Mlp(size=64, is_gated=True, activation="silu")
    dense = replace(spec, layers=tuple(replace(layer, mlp=mlp) for layer in spec.layers))
    options = {"needs_hessian": True, "has_transforms": True}
    moe, plain = (predict_memory(one, 24, **options) for one in (spec, dense))
    assert moe.layer > plain.layer
    assert moe.search > plain.search
    # Six experts and the shared one are summed in one pass.
    assert moe.moments == 4 * (7 + 3) * 64 * 64
    assert plain.moments == 4 * 3 * 64 * 64
