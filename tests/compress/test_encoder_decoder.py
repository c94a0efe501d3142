"""Encoder-decoders are quantized in both stacks, with calibration too: what flows is what the whole
model computes, as it will be stored. What removes or trains is refused."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from drivers.seen_by_rtn import SeenByRTN
from fakes.tiny_t5 import START, VOCAB_SIZE, make_t5, write_t5
from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.memory import predict_memory
from paredown.compress.calibrate.workspace import workspace_path
from paredown.compress.checked_recipe import check_recipe
from paredown.compress.compress import compress
from paredown.compress.recipe import Recipe
from paredown.compress.steps import QuantizeStep
from paredown.errors import ConfigError, UnsupportedError
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.encoder_decoder import EncoderDecoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import ROLE_POINTS

GROUPS = (
    ("q", "k", "v"),
    ("o",),
    ("cross_q",),
    ("cross_k", "cross_v"),
    ("cross_o",),
    ("gate", "up"),
    ("down",),
)
NUM_MODULES = 3 * 7 + 2 * 11
# How far predictions may be from the original's, in nats.
RECIPES = {
    "w8a8-static": 0.02,
    "smoothquant-w8a8": 0.02,
    "smoothquant-w8a8-static": 0.02,
    "gptq-w8a8": 0.02,
    "gptq-int4-g32": 0.3,
    "awq-int4-g32": 0.3,
    "awq-gptq-int4-g32": 0.3,
    "gptq-int4-g32-head-int8": 0.3,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("t5")
    write_t5(make_t5("gated-tied"), folder)
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    answers_NT = rng.integers(2, VOCAB_SIZE, (6, 17))
    answers_NT[:, 0] = START
    return Calibration(
        windows_NT=rng.integers(2, VOCAB_SIZE, (6, 24)),
        answers_NT=answers_NT,
        source="random tokens",
    )


def divergence(source: Checkpoint, written: Checkpoint) -> float:
    draw = torch.Generator().manual_seed(1)
    encoder_ids, ids = (torch.randint(2, VOCAB_SIZE, (2, size), generator=draw) for size in (40, 9))
    models = [EncoderDecoder.from_checkpoint(one) for one in (source, written)]
    with torch.no_grad():
        exact, rounded = (one(encoder_ids, ids).log_softmax(-1) for one in models)
    return float((exact.exp() * (exact - rounded)).sum(-1).mean())


@pytest.mark.parametrize("recipe", ["int8", "w8a8", "int4-g32"])
def test_both_stacks_are_quantized(recipe: str, source: Checkpoint, tmp_path: Path) -> None:
    made = compress(source, tmp_path / "out", recipe)
    written = Checkpoint.open(made.path)
    modules = written.names.layer_modules(written.spec)
    assert len(modules) == made.num_quantized == NUM_MODULES
    assert all(written.is_coded(one) for one in modules)
    assert {row.roles for row in made.schemes} >= {"head"}
    assert 0 < divergence(source, written) < (0.3 if recipe == "int4-g32" else 0.01)


@pytest.mark.parametrize("recipe", RECIPES)
def test_calibrated_recipes_keep_predictions_near_the_originals(
    recipe: str, source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    made = compress(source, tmp_path / "out", recipe, calibration=calibration)
    written = Checkpoint.open(made.path)
    assert made.num_quantized == NUM_MODULES + ("head" in recipe)
    assert 0 < divergence(source, written) < RECIPES[recipe]
    assert made.calibration == "random tokens"
    assert made.predicted_bytes is not None
    if "smoothquant" in recipe or "awq" in recipe:
        shared = "cross_k, cross_v: all layers read the encoder's vectors"
        assert any(note.startswith("decoder layer 1: ") and shared in note for note in made.notes)


def test_calibration_costs_less_than_rounding(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    def loss(recipe: str) -> float:
        made = compress(source, tmp_path / recipe, recipe, calibration=calibration)
        models = [
            EncoderDecoder.from_checkpoint(one) for one in (source, Checkpoint.open(made.path))
        ]
        assert calibration.answers_NT is not None
        ids = [torch.from_numpy(one) for one in (calibration.windows_NT, calibration.answers_NT)]
        with torch.no_grad():
            exact, rounded = (one(*ids) for one in models)
        return float((exact - rounded).square().mean())

    plain = loss("int3-g32")
    assert loss("gptq-int3-g32") < 0.8 * plain
    assert loss("awq-int3-g32") < plain


def seen_recipe() -> Recipe:
    steps = [
        QuantizeStep(quantizer=SeenByRTN(), spec=FORMATS["int4-g32"]),
        QuantizeStep(quantizer=SeenByRTN(), spec=FORMATS["int8"], targets=("head",)),
    ]
    return Recipe(name="seen", steps=tuple(steps))


def naive_moments(
    source: Checkpoint, written: Checkpoint, calibration: Calibration
) -> Iterator[tuple[str, Tensor]]:
    """By module: the whole model run once for each group of linear layers, with every layer before
    it as written and every one after it as in the source."""
    model = EncoderDecoder.from_checkpoint(source)
    assert calibration.answers_NT is not None
    ids = [torch.from_numpy(one) for one in (calibration.windows_NT, calibration.answers_NT)]
    stacks = (
        (model.encoder, source.encoder, written.encoder),
        (model.decoder, source, written),
    )
    captured: dict[str, Tensor] = {}

    def tap(point: str, x: Tensor) -> Tensor:
        captured[point] = x.double().flatten(0, 1)
        return x

    def moments(point: str) -> Tensor:
        x_NI = captured[point]
        return 2 * x_NI.T @ x_NI / len(x_NI)

    for stack, original, made in stacks:
        for index, layer in enumerate(stack.layers):
            assert isinstance(layer, Layer)
            layer.tap, waiting = tap, list[str]()
            for group in GROUPS:
                roles = [role for role in group if role in original.spec.linear_shapes(index)]
                model(*ids)
                yield from (
                    (original.linear_name(role, index), moments(ROLE_POINTS[role]))
                    for role in roles
                )
                waiting += roles
                if calibration.true_sequential or group == GROUPS[-1]:
                    for role in waiting:
                        stored = made.linear(role, index).at_work()
                        layer.get_submodule(role).weight.data = torch.from_numpy(stored)
                    waiting = []
    model.decoder.tap = tap
    model(*ids)
    yield source.names.output, moments("output_input")


@torch.no_grad()
@pytest.mark.parametrize("true_sequential", [True, False])
@pytest.mark.parametrize("kind", ["gated-untied", "relu-untied"])
def test_moments_are_of_the_quantized_model(
    kind: str, true_sequential: bool, calibration: Calibration, tmp_path: Path
) -> None:
    """The decoder's layers read the vectors of the quantized encoder."""
    write_t5(make_t5(kind), tmp_path / "in")
    source = Checkpoint.open(tmp_path / "in")
    calibration = replace(calibration, true_sequential=true_sequential)
    SeenByRTN.seen.clear()
    compress(source, tmp_path / "out", seen_recipe(), calibration=calibration)
    written = Checkpoint.open(tmp_path / "out")
    expected = list(naive_moments(source, written, calibration))
    assert len(SeenByRTN.seen) == len(expected)
    assert calibration.answers_NT is not None
    for moments, (name, hessian_II) in zip(SeenByRTN.seen, expected, strict=True):
        of_encoder = name.startswith("encoder") or name.endswith(("Attention.k", "Attention.v"))
        reads_encoder = of_encoder and ("encoder" in name[:7] or "EncDec" in name)
        read_NT = calibration.windows_NT if reads_encoder else calibration.answers_NT
        assert moments.num_rows == read_NT.size, name
        difference = (moments.hessian_II.double() - hessian_II).norm() / hessian_II.norm()
        assert float(difference) < 1e-5, name


def test_an_interrupted_run_goes_on_to_the_same_bytes(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    compress(source, tmp_path / "whole", "gptq-int4-g32", calibration=calibration)
    output = tmp_path / "out"
    for share in (0.1, 0.3, 0.5, 0.6, 0.8):

        def interrupt(what: str, done: float, share: float = share) -> None:
            if done > share:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            compress(
                source, output, "gptq-int4-g32", calibration=calibration, on_progress=interrupt
            )
        assert workspace_path(output).exists()
    result = compress(source, output, "gptq-int4-g32", calibration=calibration)
    assert any("interrupted" in note for note in result.notes)
    for name in ("model.safetensors", "config.json"):
        assert (output / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not workspace_path(output).exists()


def test_the_disk_at_the_peak_is_what_was_predicted(
    source: Checkpoint,
    calibration: Calibration,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, write = list[int](), ActivationFile.write

    def watched(self: ActivationFile, batches: Iterable[Tensor], *, lasting: bool = True) -> None:
        write(self, batches, lasting=lasting)
        sizes.append(sum(file.stat().st_size for file in self.path.parent.glob("*.f32")))

    monkeypatch.setattr(ActivationFile, "write", watched)
    made = compress(source, tmp_path / "out", "gptq-int4-g32", calibration=calibration)
    assert made.predicted_disk_bytes is not None
    assert 0.7 * made.predicted_disk_bytes < max(sizes) <= made.predicted_disk_bytes


def test_static_scales_are_those_of_what_each_side_reads(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    made = compress(source, tmp_path / "out", "w8a8-static", calibration=calibration)
    written = Checkpoint.open(made.path)
    model = EncoderDecoder.from_checkpoint(source)
    largest: dict[str, float] = {}

    def tap(point: str, x: Tensor) -> Tensor:
        largest[point] = float(x.abs().max())
        return x

    model.decoder.layers[0].tap = tap
    assert calibration.answers_NT is not None
    with torch.no_grad():
        model(torch.from_numpy(calibration.windows_NT), torch.from_numpy(calibration.answers_NT))
    # Nothing before the first layer's q is rounded; the encoder's vectors were.
    first = written.linear("q", 0).input_scale
    assert first == pytest.approx(largest["attention_input"] / 127.5, rel=1e-5)
    for role in ("cross_k", "cross_v"):
        scale = written.linear(role, 0).input_scale
        assert scale == pytest.approx(largest["cross_encoded"] / 127.5, rel=0.05)


def test_memory_is_that_of_the_larger_stack(source: Checkpoint) -> None:
    def predicted(num_tokens: int, num_answer_tokens: int) -> int:
        return predict_memory(
            source.spec,
            num_tokens,
            needs_hessian=True,
            has_transforms=True,
            num_answer_tokens=num_answer_tokens,
        ).total

    def of_encoder(num_tokens: int) -> int:
        spec = source.encoder.spec
        return predict_memory(spec, num_tokens, needs_hessian=True, has_transforms=True).total

    # Short texts of the encoder are many in a batch, and beside long ones the decoder holds both.
    assert predicted(16, 512) == of_encoder(16)
    assert min(predicted(256, 256), predicted(256, 1)) > of_encoder(256)


def test_a_calibration_without_texts_for_the_decoder_is_refused(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    for answers_NT in (None, calibration.answers_NT[:3]):
        with pytest.raises(ConfigError, match="as many of its decoder"):
            compress(
                source,
                tmp_path / "out",
                "gptq-int4-g32",
                calibration=replace(calibration, answers_NT=answers_NT),
            )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "recipe", ["wanda-50", "prune-ffn-25", "gptq-int3-g32-scales", "qad-int4-g32"]
)
def test_what_removes_or_trains_is_refused(recipe: str, source: Checkpoint) -> None:
    with pytest.raises(UnsupportedError, match="only quantized"):
        check_recipe(source, recipe)


def test_static_scales_of_keys_and_values_are_refused(source: Checkpoint) -> None:
    with pytest.raises(UnsupportedError, match="find the scales"):
        check_recipe(source, "int8-kv-int8-static")


def test_an_output_layer_of_its_own_keeps_the_scale_of_the_tied_one(
    source: Checkpoint, tmp_path: Path
) -> None:
    made = compress(source, tmp_path / "out", "int8-head-int8")
    written = Checkpoint.open(made.path)
    assert made.untied
    assert not written.spec.is_tied
    assert written.spec.present_output.multiplier == source.spec.present_output.multiplier != 1
    assert 0 < divergence(source, written) < 0.01
