"""AWQ against a naive one in float64, and what it must and must not change."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.input_sample import observe
from paredown.compress.compress import compress
from paredown.compress.fit_grid import fit_grid
from paredown.compress.quantize.awq import (
    AWQ,
    candidate_scales,
    clipped,
    pseudo_quantized,
    search_steps,
    weight_means,
)
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.method import LayerTarget, Moments, Transformed
from paredown.compress.quantize.rescale import linear_weight, replaced
from paredown.compress.quantize.rtn import RTN
from paredown.errors import CheckpointError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.table import FORMATS, STEP_FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import INPUT_POINTS
from paredown.models.decoder.smoothing import smoothing_pairs
from paredown.models.roles import linear_roles
from paredown.spec.weight import WeightSpec
from references.awq import clip_group, round_groups, scales_of, search_row
from references.plain_block import PlainBlock, cross_block, tiny_block

INT3 = LayerTarget(spec=FORMATS["int3-g32-asym"], scale_dtype="fp32")


def all_targets(block: PlainBlock, target: LayerTarget = INT3) -> dict[str, LayerTarget]:
    return dict.fromkeys(linear_roles(block.spec, 0), target)


def make_uneven(block: PlainBlock) -> None:
    """A few channels of each norm are large, so that there is something to gain."""
    generator = torch.Generator().manual_seed(5)
    for norm in (block.layer.attention_norm, block.layer.mlp_norm):
        chosen = torch.randperm(block.spec.hidden_size, generator=generator)[:4]
        norm.weight.data[chosen] *= 12


def rounding_error(block: PlainBlock, expected: torch.Tensor, target: LayerTarget) -> float:
    weights = {
        role: pseudo_quantized(linear_weight(block.layer, role), target)
        for role in linear_roles(block.spec, 0)
    }
    with replaced(block.layer, weights):
        return float((block.outputs() - expected).square().mean())


@pytest.mark.parametrize("variant", ["llama-gqa", "qwen3", "opt", "opt-gelu", "llama-biases"])
def test_scales_keep_the_function_and_lose_less(variant: str, tmp_path: Path) -> None:
    block = tiny_block(variant, tmp_path, double=True)
    make_uneven(block)
    expected = block.outputs()
    before = rounding_error(block, expected, INT3)
    notes = AWQ(clip=False).apply(block, all_targets(block)).notes
    torch.testing.assert_close(block.outputs(), expected, rtol=1e-6, atol=1e-6)
    assert rounding_error(block, expected, INT3) < 0.9 * before
    assert (variant == "opt-gelu") == any("gelu" in note for note in notes)


def test_the_first_scale_is_the_naive_search_s(tmp_path: Path) -> None:
    block = tiny_block("llama-gqa", tmp_path, double=True)
    make_uneven(block)
    layer = block.layer
    x_SI = torch.cat([layer.attention_norm(x).flatten(0, 1) for x in block.batches])
    weights = {role: linear_weight(layer, role).clone() for role in ("q", "k", "v")}
    expected = torch.cat(
        [layer.attention(layer.attention_norm(x), block.table, block.mask) for x in block.batches]
    )
    errors, tried = [], [torch.ones(x_SI.shape[1], dtype=torch.float64)]
    tried += [scales_of(step / 20, x_SI, list(weights.values()), 32) for step in range(20)]
    for scales_I in tried:
        trial = {
            role: round_groups(weight * scales_I, INT3) / scales_I
            for role, weight in weights.items()
        }
        with replaced(layer, trial):
            outputs = [
                layer.attention(layer.attention_norm(x), block.table, block.mask)
                for x in block.batches
            ]
        errors.append(float((torch.cat(outputs) - expected).square().mean()))
    best = tried[min(range(len(tried)), key=errors.__getitem__)]
    assert not torch.equal(best, tried[0])
    before = layer.attention_norm.weight.data.clone()
    AWQ(clip=False).apply(block, all_targets(block))
    torch.testing.assert_close(before / layer.attention_norm.weight.data, best, rtol=1e-5, atol=0)


def test_the_scale_of_cross_attention_is_the_naive_search_s(tmp_path: Path) -> None:
    """Its queries' norm has one, and its values; keys and values read what all layers read."""
    block = cross_block(tmp_path, double=True)
    layer = block.layer
    chosen = torch.randperm(block.spec.hidden_size, generator=torch.Generator().manual_seed(5))[:4]
    layer.cross_norm.weight.data[chosen] *= 12
    layer.cross_q.weight.data[:, chosen] /= 4
    inputs = []

    def tap(point: str, x: torch.Tensor) -> torch.Tensor:
        if point == "cross_input":
            inputs.append(x)
        return x

    block.run(tap)
    weight, names = layer.cross_q.weight.data.clone(), ("cross_norm", "cross_q", "cross_k")
    before = {name: layer.get_submodule(name).weight.data.clone() for name in names}
    outputs = block.outputs()

    def attended() -> torch.Tensor:
        found = []
        for x, read in zip(inputs, block.encoded(), strict=True):
            scores = heads(layer.cross_q(x)) @ heads(layer.cross_k(read)).mT
            mixed = (scores.softmax(-1) @ heads(layer.cross_v(read))).transpose(1, 2).flatten(2)
            found.append(layer.cross_o(mixed))
        return torch.cat(found)

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, layer.spec.cross.head_dim)).transpose(1, 2)

    expected, x_SI = attended(), torch.cat(inputs).flatten(0, 1)
    tried = [torch.ones(x_SI.shape[1], dtype=torch.float64)]
    tried += [scales_of(step / 20, x_SI, [weight], 32) for step in range(20)]
    errors = []
    for scales_I in tried:
        with replaced(layer, {"cross_q": round_groups(weight * scales_I, INT3) / scales_I}):
            errors.append(float((attended() - expected).square().mean()))
    best = tried[min(range(len(tried)), key=errors.__getitem__)]
    assert not torch.equal(best, tried[0])
    notes = AWQ(clip=False).apply(block, all_targets(block)).notes
    ratio = before["cross_norm"] / layer.cross_norm.weight.data
    torch.testing.assert_close(ratio, best, rtol=1e-5, atol=0)
    assert torch.equal(layer.cross_k.weight.data, before["cross_k"])
    torch.testing.assert_close(block.outputs(), outputs, rtol=1e-6, atol=1e-6)
    assert any(note.startswith("cross_k, cross_v: ") for note in notes)


def test_means_and_candidates_are_the_naive_ones() -> None:
    generator = torch.Generator().manual_seed(1)
    x_SI = torch.randn(50, 64, generator=generator, dtype=torch.float64)
    weights = {
        role: torch.randn(rows, 64, generator=generator, dtype=torch.float64)
        for role, rows in (("gate", 7), ("up", 5))
    }
    means_I = weight_means(weights, dict.fromkeys(weights, INT3))
    for ratio in (0.0, 0.35, 0.95):
        ours = candidate_scales(ratio, x_SI.abs().mean(0), means_I)
        naive = scales_of(ratio, x_SI, list(weights.values()), 32)
        torch.testing.assert_close(ours, naive, rtol=1e-12, atol=0)
        assert float(ours.max() * ours.min()) == pytest.approx(1)


@pytest.mark.parametrize("name", ["int4-g32", "int3-g64-asym", "int8"])
def test_clipping_is_the_naive_one_group_by_group(name: str) -> None:
    target = LayerTarget(spec=FORMATS[name], scale_dtype="bf16")
    generator = torch.Generator().manual_seed(2)
    weight_OI = torch.randn(6, 128, generator=generator, dtype=torch.float64) ** 3
    x_SI = torch.randn(100, 128, generator=generator, dtype=torch.float64)
    result = clipped(weight_OI, x_SI, target)
    size = target.spec.group_size or 128
    for row in range(6):
        for start in range(0, 128, size):
            part = slice(start, start + size)
            naive = clip_group(weight_OI[row, part], x_SI[:, part], target)
            torch.testing.assert_close(result[row, part], naive, rtol=0, atol=0)
    assert (name == "int8") == torch.equal(result, weight_OI)


def test_clipping_takes_every_nth_token() -> None:
    weight_OI = torch.randn(4, 32, generator=torch.Generator().manual_seed(3))
    x_SI = torch.randn(1100, 32, generator=torch.Generator().manual_seed(4))
    assert torch.equal(clipped(weight_OI, x_SI, INT3), clipped(weight_OI, x_SI[::3], INT3))


@pytest.mark.parametrize("name", ["w4a8-g32-qoq", "w4a8-g32-asym-qoq"])
def test_integer_steps_are_those_of_a_naive_search(name: str) -> None:
    target = LayerTarget(spec=STEP_FORMATS[name], scale_dtype="bf16")
    generator = torch.Generator().manual_seed(2)
    weight_OI = torch.randn(5, 96, generator=generator, dtype=torch.float64) ** 3
    x_SI = torch.randn(100, 96, generator=generator, dtype=torch.float64) ** 3
    grid = search_steps(weight_OI, x_SI, target)
    for row in range(5):
        naive = search_row(weight_OI[row], x_SI, target)
        assert torch.equal(grid.scales_OG[row], naive)
    plain = fit_grid(weight_OI.view(5, 3, 32), target.spec, "bf16")
    assert not torch.equal(grid.scales_OG, plain.scales_OG)


def test_without_inputs_hardly_any_range_is_cut() -> None:
    target = LayerTarget(spec=STEP_FORMATS["w4a8-g32-qoq"], scale_dtype="bf16")
    weight_OI = torch.randn(4, 64, generator=torch.Generator().manual_seed(3))
    grid = search_steps(weight_OI, torch.zeros(20, 64), target)
    whole_OG = weight_OI.view(4, 2, 32).abs().amax(-1) / 7.5
    assert bool((grid.scales_OG > 0.85 * whole_OG).all())


def test_steps_that_were_searched_are_the_ones_that_are_rounded_on(tmp_path: Path) -> None:
    block = tiny_block("llama-gqa", tmp_path)
    target = LayerTarget(spec=STEP_FORMATS["w4a8-g32-qoq"], scale_dtype="bf16")
    done = AWQ().apply(block, all_targets(block, target))
    assert set(done.grids) == {"v", "o", "gate", "up", "down"}
    moments = Moments(hessian_II=torch.eye(64), num_rows=100)
    for role in ("v", "o"):
        grid, weight_OI = done.grids[role], linear_weight(block.layer, role)
        for quantizer in (RTN(), GPTQ()):
            found = quantizer.quantize(weight_OI, replace(target, grid=grid), moments).weight
            assert isinstance(found, GridWeight)
            assert np.array_equal(found.scales_OG, grid.scales_OG.numpy())
    assert AWQ(clip=False).apply(block, all_targets(block, target)).grids == {}


def test_queries_and_keys_are_not_clipped(tmp_path: Path) -> None:
    block = tiny_block("llama-gqa", tmp_path)
    plain = tiny_block("llama-gqa", tmp_path)
    AWQ().apply(block, all_targets(block))
    AWQ(clip=False).apply(plain, all_targets(plain))
    clips = {
        role: not torch.equal(linear_weight(block.layer, role), linear_weight(plain.layer, role))
        for role in linear_roles(block.spec, 0)
    }
    assert {role for role, changed in clips.items() if not changed} == {"q", "k"}


def test_only_pairs_with_targets_are_touched(tmp_path: Path) -> None:
    block = tiny_block("llama-gqa", tmp_path)
    before = {name: values.clone() for name, values in block.layer.state_dict().items()}
    AWQ().apply(block, {"down": INT3})
    changed = {
        name
        for name, values in block.layer.state_dict().items()
        if not torch.equal(values, before[name])
    }
    assert changed <= {"up.weight", "down.weight"}
    floats = LayerTarget(spec=WeightSpec(dtype="bf16"), scale_dtype="bf16")
    assert AWQ().apply(block, {"up": floats}) == Transformed()


def test_no_scaling_is_kept_where_none_is_better(tmp_path: Path) -> None:
    """With whole numbers on the grid already, rounding loses nothing that scales could save."""
    block = tiny_block("llama-gqa", tmp_path, double=True)
    target = LayerTarget(spec=FORMATS["int8"], scale_dtype="fp32")
    for role in linear_roles(block.spec, 0):
        weight = linear_weight(block.layer, role)
        weight.copy_(pseudo_quantized(weight, target))
    before = {name: values.clone() for name, values in block.layer.state_dict().items()}
    notes = AWQ().apply(block, all_targets(block, target)).notes
    assert len(notes) == len(smoothing_pairs(block.layer.spec))
    for name, values in block.layer.state_dict().items():
        torch.testing.assert_close(values, before[name], rtol=1e-12, atol=1e-12)


def test_observation_is_of_all_tokens_and_its_sample_bounded(tmp_path: Path) -> None:
    block = tiny_block("llama-gqa", tmp_path)
    seen: dict[str, list[torch.Tensor]] = {}

    def tap(point: str, x: torch.Tensor) -> torch.Tensor:
        seen.setdefault(point, []).append(x)
        return x

    block.run(tap)
    for point, one in observe(block, INPUT_POINTS.values(), num_tokens=72).items():
        x_NTI = torch.cat(seen[point])
        assert torch.equal(one.absmax_I, x_NTI.abs().amax((0, 1)))
        torch.testing.assert_close(one.absmean_I, x_NTI.abs().mean((0, 1)))
        assert torch.equal(one.sample_NTI, x_NTI[:3])
    small = observe(block, ["down_input"], num_tokens=10)["down_input"].sample_NTI
    assert torch.equal(small, torch.cat(seen["down_input"])[:1, :10])


def test_inputs_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    block = tiny_block("llama-gqa", tmp_path)
    linear_weight(block.layer, "up")[3] = torch.nan
    with pytest.raises(CheckpointError, match="not finite") as caught:
        AWQ().apply(block, all_targets(block))
    assert "down_input, channel 3" in str(caught.value)


def test_it_goes_before_gptq(tmp_path: Path) -> None:
    VARIANTS["llama-gqa"](tmp_path / "tiny", torch.bfloat16, 0)
    source = Checkpoint.open(tmp_path / "tiny")
    windows_NT = np.random.default_rng(0).integers(2, VOCAB_SIZE, (16, 32))
    calibration = Calibration(windows_NT=windows_NT, source="random")
    ids = torch.from_numpy(windows_NT)
    expected = Decoder.from_checkpoint(source)(ids)
    errors = {}
    for name in ("int3-g32", "awq-int3-g32", "awq-gptq-int3-g32"):
        result = compress(source, tmp_path / name, name, calibration=calibration)
        logits = Decoder.from_checkpoint(Checkpoint.open(result.path))(ids)
        errors[name] = float((logits - expected).square().mean())
    assert errors["awq-gptq-int3-g32"] < errors["awq-int3-g32"] < errors["int3-g32"]
