"""SmoothQuant: equation 4, the search for alpha, what static scales see, the attention in int8."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.int8_attention import use_int8_attention
from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.activations import round_input
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.quantize.method import LayerTarget, Transformed
from paredown.compress.quantize.rescale import linear_weight, replaced
from paredown.compress.quantize.rtn import RTN
from paredown.compress.quantize.smoothquant import ALPHAS, SmoothQuant, simulated, smoothing_scales
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import ROLE_POINTS, untouched
from paredown.models.roles import linear_roles
from paredown.spec.weight import ActivationDType, WeightSpec
from references.plain_block import PlainBlock, cross_block, tiny_block


def w8a8(activations: ActivationDType = "int8_row") -> LayerTarget:
    return LayerTarget(spec=WeightSpec(dtype="int8", activations=activations), scale_dtype="bf16")


def outlier_block(variant: str, folder: Path, factor: float = 64) -> PlainBlock:
    """Three channels of each norm's output are large, and the columns that read them small."""
    block = tiny_block(variant, folder)
    for norm, roles in (("attention_norm", ("q", "k", "v")), ("mlp_norm", ("gate", "up"))):
        for vector in block.layer.get_submodule(norm).parameters():
            vector.data[5:8] *= factor
        for role in roles:
            if role in linear_roles(block.spec, 0):
                linear_weight(block.layer, role)[:, 5:8] /= factor
    return block


def targets_of(block: PlainBlock, target: LayerTarget) -> dict[str, LayerTarget]:
    return dict.fromkeys(linear_roles(block.spec, 0), target)


def largest_inputs(block: PlainBlock) -> dict[str, torch.Tensor]:
    """[I] of each point, naively."""
    found: dict[str, torch.Tensor] = {}

    def tap(point: str, x: torch.Tensor) -> torch.Tensor:
        if point in ROLE_POINTS.values():
            rows = x.abs().flatten(0, 1).amax(0)
            found[point] = torch.maximum(found.get(point, rows), rows)
        return x

    block.run(tap)
    return found


def rounded_outputs(
    block: PlainBlock, target: LayerTarget, rounding: RTN | None = None
) -> torch.Tensor:
    """Weights and inputs rounded by a tap, without the method's own simulation."""
    largest = largest_inputs(block)
    rounding = rounding or RTN()

    def tap(point: str, x: torch.Tensor) -> torch.Tensor:
        if point not in largest:
            return x
        scale = float((largest[point].max() / 127.5).to(torch.bfloat16))
        return round_input(x, target.spec.activations, scale)

    weights = {
        role: torch.from_numpy(
            rounding.quantize(linear_weight(block.layer, role), target, None).weight.at_work()
        )
        for role in linear_roles(block.spec, 0)
    }
    block.layer.tap = tap
    with replaced(block.layer, weights):
        outputs = block.outputs()
    block.layer.tap = untouched
    return outputs


@pytest.mark.parametrize(
    ("make", "norm", "point", "roles", "unsmoothed"),
    [
        (lambda folder: outlier_block("llama-gqa", folder), "mlp_norm", "mlp_input", "gate up", 0),
        (cross_block, "mlp_norm", "mlp_input", "gate up", 1),
        (cross_block, "cross_norm", "cross_input", "cross_q", 1),
    ],
)
def test_a_fixed_alpha_is_equation_four(
    make: Callable[[Path], PlainBlock],
    norm: str,
    point: str,
    roles: str,
    unsmoothed: int,
    tmp_path: Path,
) -> None:
    block = make(tmp_path)
    smoothed = block.layer.get_submodule(norm)
    old_norm = smoothed.weight.data.clone()
    columns = torch.cat([linear_weight(block.layer, role) for role in roles.split()])
    expected, largest = block.outputs(), largest_inputs(block)[point]
    notes = SmoothQuant(alpha=0.6).apply(block, targets_of(block, w8a8())).notes
    first, *others = notes
    assert first == "alpha 0.60"
    assert len(others) == unsmoothed
    assert all("cross_k" in one and "cross_v" in one for one in others)
    for channel in range(block.spec.hidden_size):
        x_max = float(largest[channel])
        w_max = max(float(columns[:, channel].abs().max()), 1e-5)
        scale = max(x_max**0.6 / w_max**0.4, 1e-5)
        stored = float((old_norm[channel] / scale).to(torch.bfloat16))
        assert float(smoothed.weight.data[channel]) == pytest.approx(stored, rel=1e-2)
    torch.testing.assert_close(block.outputs(), expected, rtol=1e-4, atol=1e-4)


def test_the_queries_of_cross_attention_are_smoothed_and_the_function_stays(
    tmp_path: Path,
) -> None:
    block = cross_block(tmp_path)
    layer = block.layer
    layer.cross_norm.weight.data[5:8] *= 30
    layer.cross_q.weight.data[:, 5:8] /= 30
    expected = block.outputs()
    before = float((rounded_outputs(block, w8a8()) - expected).square().mean())
    kept = layer.cross_k.weight.data.clone()
    notes = SmoothQuant().apply(block, targets_of(block, w8a8())).notes
    torch.testing.assert_close(block.outputs(), expected, rtol=1e-3, atol=1e-3)
    assert torch.equal(layer.cross_k.weight.data, kept)
    assert float((rounded_outputs(block, w8a8()) - expected).square().mean()) < 0.5 * before
    assert any(note.startswith("cross_k, cross_v: ") for note in notes)


def test_a_channel_that_calibration_never_saw_keeps_its_scale() -> None:
    scales_P = smoothing_scales(torch.tensor([0.0, 4.0, 1e-9]), torch.tensor([1.0, 0.0, 1.0]), 0.5)
    assert scales_P.tolist() == pytest.approx([1.0, 2.0 / 1e-5**0.5, 1e-9**0.5], rel=1e-5)


@pytest.mark.parametrize("variant", ["llama-gqa", "qwen3", "opt"])
@pytest.mark.parametrize("activations", ["int8_row", "int8_static"])
def test_outliers_no_longer_cost_anything(
    variant: str, activations: ActivationDType, tmp_path: Path
) -> None:
    target = w8a8(activations)
    block = outlier_block(variant, tmp_path)
    expected = block.outputs()
    before = float((rounded_outputs(block, target) - expected).square().mean())
    SmoothQuant().apply(block, targets_of(block, target))
    after = float((rounded_outputs(block, target) - expected).square().mean())
    assert after < 0.3 * before


def test_the_search_finds_the_best_of_its_alphas(tmp_path: Path) -> None:
    target, errors = w8a8(), {}
    for alpha in ALPHAS:
        block = outlier_block("llama-gqa", tmp_path / str(alpha), factor=8)
        expected = block.outputs()
        SmoothQuant(alpha=alpha).apply(block, targets_of(block, target))
        errors[alpha] = float((rounded_outputs(block, target) - expected).square().mean())
    block = outlier_block("llama-gqa", tmp_path / "searched", factor=8)
    notes = SmoothQuant().apply(block, targets_of(block, target)).notes
    assert notes == (f"alpha {min(errors, key=errors.__getitem__):.2f}",)


def test_no_smoothing_is_kept_where_none_is_better(tmp_path: Path) -> None:
    """A layer whose outputs are zero whatever is rounded."""
    block = tiny_block("llama-gqa", tmp_path)
    for role in linear_roles(block.spec, 0):
        linear_weight(block.layer, role).zero_()
    before = {name: values.clone() for name, values in block.layer.state_dict().items()}
    notes = SmoothQuant().apply(block, targets_of(block, w8a8())).notes
    assert notes == ("unsmoothed, no alpha lost less",)
    assert all(torch.equal(v, before[name]) for name, v in block.layer.state_dict().items())


@pytest.mark.parametrize("per_tensor", [False, True])
@pytest.mark.parametrize("activations", ["int8_row", "int8_static"])
def test_the_simulation_rounds_weights_and_inputs_and_ends(
    per_tensor: bool, activations: ActivationDType, tmp_path: Path
) -> None:
    block, target = tiny_block("llama-gqa", tmp_path), w8a8(activations)
    rounding, plain = RTN(per_tensor=per_tensor), block.outputs()
    with simulated(block.layer, targets_of(block, target), largest_inputs(block), rounding):
        inside = block.outputs()
    assert torch.equal(block.outputs(), plain)
    torch.testing.assert_close(inside, rounded_outputs(block, target, rounding))
    assert not torch.equal(inside, plain)


def test_only_norms_with_targets_are_smoothed(tmp_path: Path) -> None:
    block = outlier_block("llama-gqa", tmp_path)
    before = {name: values.clone() for name, values in block.layer.state_dict().items()}
    SmoothQuant(alpha=0.5).apply(block, {"gate": w8a8()})
    changed = {
        name for name, v in block.layer.state_dict().items() if not torch.equal(v, before[name])
    }
    assert changed == {"mlp_norm.weight", "gate.weight", "up.weight"}
    assert SmoothQuant().apply(block, {}) == Transformed()


def tiny_decoder(variant: str, folder: Path) -> Decoder:
    VARIANTS[variant](folder, torch.float32, 0)
    return Decoder.from_checkpoint(Checkpoint.open(folder))


@pytest.mark.parametrize("static", [False, True])
def test_the_attention_in_int8_is_the_product_of_integers(static: bool, tmp_path: Path) -> None:
    decoder = tiny_decoder("llama-gqa", tmp_path)
    spec, layer = decoder.spec, decoder.layers[0]
    windows_NT = np.random.default_rng(0).integers(2, VOCAB_SIZE, (3, 24))
    use_int8_attention(decoder, windows_NT=windows_NT, static_probabilities=static)
    rounding = layer.tap
    seen: dict[str, torch.Tensor] = {}

    def tap(point: str, x: torch.Tensor) -> torch.Tensor:
        seen[point] = x
        return rounding(point, x)

    layer.tap = tap
    decoder(torch.from_numpy(windows_NT))
    codes = {
        point: rounding.codes(point, seen[point])[0].long()
        for point in ("q", "k", "probabilities", "v")
    }
    # The calibration windows themselves reach the largest code, but for probabilities below 1.
    assert [int(codes[point].abs().max()) for point in ("q", "k", "v")] == [127, 127, 127]
    attention = spec.layers[0].attention
    groups = attention.num_heads_per_group
    k, v = (codes[point].repeat_interleave(groups, dim=1) for point in ("k", "v"))
    folded = rounding.scales["q"] * rounding.scales["k"] * attention.head_dim**-0.5
    exact = (codes["q"] @ k.transpose(-1, -2)).double() * folded
    torch.testing.assert_close(seen["scores"].double(), exact, rtol=1e-5, atol=1e-5)
    step = 1 / 127 if static else seen["probabilities"].amax(-1, keepdim=True).double() / 127
    mixed = (codes["probabilities"] @ v).double() * rounding.scales["v"] * step
    exact_BTD = mixed.transpose(1, 2).flatten(2)
    torch.testing.assert_close(seen["o_input"].double(), exact_BTD, rtol=1e-5, atol=1e-5)


def test_the_scales_of_the_attention_reach_its_largest_values(tmp_path: Path) -> None:
    decoder = tiny_decoder("qwen3", tmp_path)
    windows_NT = np.random.default_rng(1).integers(2, VOCAB_SIZE, (4, 16))
    largest: list[dict[str, float]] = []
    for layer in decoder.layers:
        largest.append({})

        def tap(point: str, x: torch.Tensor, own: dict[str, float] = largest[-1]) -> torch.Tensor:
            own[point] = max(own.get(point, 0.0), float(x.abs().max()))
            return x

        layer.tap = tap
    decoder(torch.from_numpy(windows_NT))
    for layer in decoder.layers:
        layer.tap = untouched
    use_int8_attention(decoder, windows_NT=windows_NT)
    for layer, own in zip(decoder.layers, largest, strict=True):
        assert set(layer.tap.scales) == {"q", "k", "v"}
        for point in ("q", "k", "v"):
            assert layer.tap.scales[point] * 127 == pytest.approx(own[point], rel=1e-5)


@pytest.mark.parametrize("options", [{"alpha": 1.5}, {"alpha": -0.1}, {"num_tokens": 0}])
def test_senseless_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        SmoothQuant(**options)


@pytest.mark.parametrize("level", ["o1", "o3"])
def test_levels_give_all_rows_one_scale(level: str, tmp_path: Path) -> None:
    VARIANTS["llama-gqa"](tmp_path / "tiny", torch.bfloat16, 0)
    windows_NT = np.random.default_rng(0).integers(2, VOCAB_SIZE, (4, 32))
    result = compress(
        Checkpoint.open(tmp_path / "tiny"),
        tmp_path / level,
        f"smoothquant-{level}",
        calibration=Calibration(windows_NT=windows_NT, source="random"),
    )
    assert any("alpha" in note or "unsmoothed" in note for note in result.notes)
    weight = Checkpoint.open(result.path).linear("up", 1)
    assert weight.scales_OG is not None
    assert len(set(weight.scales_OG.flatten().tolist())) == 1
    assert (weight.input_scale is None) == (level == "o1")
