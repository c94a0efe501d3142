"""The PyTorch decoder under variants: against the native executor, against plain sums, and against
variants that compute everything."""

import numpy as np
import pytest
import torch

from fakes.random_text import random_text
from fakes.tiny_models import VARIANTS
from paredown.compress.activations import round_input
from paredown.compress.compress import compress
from paredown.compress.fit_grid import fit_grid
from paredown.compress.grid import grouped
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.quality.simulated import OUTPUT, Variant, applied, measure_variants
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import INPUT_POINTS

NAMES = ["llama-gqa", "llama-tied", "qwen3", "opt"]


def open_model(name: str, folder) -> tuple[Checkpoint, Decoder]:
    VARIANTS[name](folder, torch.float32, 0)
    checkpoint = Checkpoint.open(folder)
    return checkpoint, Decoder.from_checkpoint(checkpoint)


def rounded_weights(decoder: Decoder, layers: list[int]) -> dict[str, torch.Tensor]:
    spec = FORMATS["int4-g32"]
    weights = {}
    for name, values in decoder.state_dict().items():
        if any(name.startswith(f"layers.{layer}.") for layer in layers) and values.ndim == 2:
            groups = grouped(values, spec.group_size)
            grid = fit_grid(groups, spec, "fp32")
            weights[name] = grid.values(grid.codes(groups)).reshape(values.shape)
    return weights


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_decoder_has_the_figures_of_the_native_executor(name: str, tmp_path) -> None:
    """Both compute in float32; perplexities agree to 1e-5, KL between the two is nothing."""
    checkpoint, decoder = open_model(name, tmp_path)
    text = random_text(150, 64)
    executor = load_executor(
        checkpoint, RunOptions(num_pages=num_pages_for(text), activations="fp32", kv_dtype="fp32")
    )
    (native,), _ = measure_quality([executor], text)
    (same,), plain = measure_variants(decoder, [Variant()], text)
    assert plain.perplexity == pytest.approx(native.perplexity, rel=1e-5)
    assert plain.bits_per_byte == pytest.approx(native.bits_per_byte, rel=1e-5)
    assert same.perplexity == plain.perplexity
    assert same.kl_divergence == 0
    assert same.top1_agreement == 1


@pytest.mark.parametrize(("recipe", "activations"), [("w8a8", "int8_row"), ("int8", "int8_group")])
def test_rounded_inputs_have_the_figures_of_the_native_executor(
    recipe, activations, tmp_path
) -> None:
    """What the core computes from int8 inputs and int8 weights, here from rounded floats."""
    source, _ = open_model("llama-wide", tmp_path / "source")
    compress(source, tmp_path / recipe, recipe)
    checkpoint = Checkpoint.open(tmp_path / recipe)
    decoder = Decoder.from_checkpoint(checkpoint)
    text = random_text(150, 64)
    executor = load_executor(checkpoint, RunOptions(num_pages=num_pages_for(text), kv_dtype="fp32"))
    whole = load_executor(
        checkpoint, RunOptions(num_pages=num_pages_for(text), activations="fp32", kv_dtype="fp32")
    )
    (native,), _ = measure_quality([executor], text, whole)
    taps = {
        f"layers.{layer}.{point}": lambda x: round_input(x, activations)
        for layer in range(checkpoint.spec.num_layers)
        for point in set(INPUT_POINTS.values())
    }
    (ours,), _ = measure_variants(decoder, [Variant(taps=taps)], text)
    assert ours.perplexity == pytest.approx(native.perplexity, rel=1e-3)
    assert ours.kl_divergence == pytest.approx(native.kl_divergence, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_starting_late_changes_nothing(name: str, tmp_path) -> None:
    """Against the same decoder as a foreign reference, for which everything is computed."""
    _, decoder = open_model(name, tmp_path)
    taps = {"layers.1.scores": lambda x: x.half().float(), "logits": lambda x: x * 1.01}
    output = decoder.embedding.weight if decoder.spec.is_tied else decoder.output.weight
    variants = [
        Variant(weights=rounded_weights(decoder, [1])),
        Variant(weights=rounded_weights(decoder, [0, 1])),
        Variant(taps=taps),
        Variant(taps={"output_input": lambda x: x.round(decimals=1)}),
        Variant(weights={OUTPUT: output * 1.02}),
        Variant(weights={"embedding.weight": decoder.embedding.weight * 0.98}),
    ]
    late, _ = measure_variants(decoder, variants, random_text(150, 64))
    whole, _ = measure_variants(decoder, variants, random_text(150, 64), reference=decoder)
    assert late == whole
    assert all(quality.kl_divergence > 0 for quality in late)


def test_figures_are_plain_sums_of_log_probabilities(tmp_path) -> None:
    _, decoder = open_model("llama-gqa", tmp_path)
    text = random_text(70, 40)
    variant = Variant(weights=rounded_weights(decoder, [0]))
    (ours,), plain = measure_variants(decoder, [variant], text)
    nll, kl, agreeing = 0.0, 0.0, 0
    for window in text.windows:
        ids = torch.tensor([window.inputs])
        log_p = decoder(ids)[0].double().log_softmax(-1)
        with applied(decoder, variant):
            log_q = decoder(ids)[0].double().log_softmax(-1)
        for p, q, target in zip(log_p, log_q, window.targets, strict=True):
            nll -= float(q[target])
            kl += float((p.exp() * (p - q)).sum())
            agreeing += int(p.argmax() == q.argmax())
    assert ours.perplexity == pytest.approx(np.exp(nll / text.num_tokens), rel=1e-5)
    assert ours.kl_divergence == pytest.approx(kl / text.num_tokens, rel=1e-4)
    assert ours.top1_agreement == agreeing / text.num_tokens
    assert plain.kl_divergence is None


def test_the_decoder_is_as_it_was_even_after_an_error(tmp_path) -> None:
    _, decoder = open_model("llama-tied", tmp_path)
    before = {name: values.clone() for name, values in decoder.state_dict().items()}
    seen: list[str] = []

    def broken(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("broken")

    def own(point: str, x: torch.Tensor) -> torch.Tensor:
        seen.append(point)
        return x

    decoder.layers[0].tap = own
    variant = Variant(
        weights=rounded_weights(decoder, [0, 1]), taps={"layers.1.v": broken, "layers.0.v": abs}
    )
    with pytest.raises(RuntimeError, match="broken"):
        measure_variants(decoder, [variant], random_text(150, 64))
    assert decoder.layers[0].tap is own
    assert "v" in seen
    for name, values in decoder.state_dict().items():
        assert torch.equal(values, before[name])


def test_progress_reaches_its_total(tmp_path) -> None:
    _, decoder = open_model("llama-gqa", tmp_path)
    seen: list[tuple[int, int]] = []
    text = random_text(150, 64)
    measure_variants(
        decoder, [Variant()], text, on_progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (2 * len(text.windows), 2 * len(text.windows))
