"""Errors of layers against the whole decoder, layer by layer, in float64."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import MAX_POSITIONS, make_model
from paredown.compress.compress import compress
from paredown.errors import CheckpointError
from paredown.evaluate.quality.layer_error import layer_errors, relative_error
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.write import write_decoder

IDS = [int(i) for i in np.random.default_rng(2).integers(0, 300, MAX_POSITIONS)]


def frobenius(y_c: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(((y_c - y) ** 2).sum() / (y**2).sum()))


def reference_errors(original: Checkpoint, compressed: Checkpoint) -> list[tuple[float, float]]:
    """Whole models in float64, every layer's input kept."""
    models = [Decoder.from_checkpoint(one).double() for one in (original, compressed)]
    x, x_c = (one.embed(torch.tensor([IDS])) for one in models)
    found = []
    for layer, compressed_layer in zip(models[0].layers, models[1].layers, strict=True):
        table, mask = layer.positions(len(IDS))
        positions = (None if table is None else tuple(part.double() for part in table), mask)
        y = layer(x, *positions)
        own = compressed_layer(x, *positions)
        x, x_c = y, compressed_layer(x_c, *positions)
        found.append((frobenius(own.numpy(), y.numpy()), frobenius(x_c.numpy(), y.numpy())))
    return found


@pytest.mark.parametrize(
    ("family", "recipe"),
    [("llama", "int4-g32"), ("qwen3", "int3-g32-asym"), ("gpt2", "fp16"), ("opt", "int8")],
)
def test_errors_are_those_of_whole_models(family: str, recipe: str, tmp_path: Path) -> None:
    make_model(family, torch.bfloat16, 1).save_pretrained(tmp_path / "model")
    original = Checkpoint.open(tmp_path / "model")
    compress(original, tmp_path / "out", recipe)
    compressed = Checkpoint.open(tmp_path / "out")
    done = []
    errors = layer_errors(original, compressed, IDS, lambda *progress: done.append(progress))
    assert done == [(1, 2), (2, 2)]
    expected = reference_errors(original, compressed)
    assert [one.layer for one in errors] == [0, 1]
    for one, (own, accumulated) in zip(errors, expected, strict=True):
        assert one.own == pytest.approx(own, rel=1e-3, abs=1e-5)
        assert one.accumulated == pytest.approx(accumulated, rel=1e-3, abs=1e-5)
    # The first layer is fed the same: embeddings are not quantized.
    assert errors[0].own == errors[0].accumulated
    assert all(one.own == 0 for one in layer_errors(original, original, IDS))


def test_layers_are_compared_with_those_they_were(tmp_path: Path) -> None:
    """Layers 0, 2 and 3 of five, with an error put into the second of them."""
    make_model("llama", torch.float32, 1, num_hidden_layers=5).save_pretrained(tmp_path / "model")
    original = Checkpoint.open(tmp_path / "model")
    decoder = Decoder.from_checkpoint(original)
    kept = (0, 2, 3)
    decoder.layers[2].down.weight *= 1.5
    shorter = Decoder(replace(original.spec, layers=original.spec.layers[:3]))
    shorter.load_state_dict(
        {
            name: value
            for name, value in decoder.state_dict().items()
            if not name.startswith("layers.")
        }
        | {
            f"layers.{number}.{name}": value
            for number, layer in enumerate(kept)
            for name, value in decoder.layers[layer].state_dict().items()
        }
    )
    write_decoder(shorter, original, tmp_path / "cut")
    config = json.loads((tmp_path / "cut" / "config.json").read_text())
    config["paredown"] = {"kept_layers": list(kept)}
    (tmp_path / "cut" / "config.json").write_text(json.dumps(config))
    errors = layer_errors(original, Checkpoint.open(tmp_path / "cut"), IDS)
    assert [one.layer for one in errors] == list(kept)
    assert [one.own > 0 for one in errors] == [False, True, False]
    x_c = Decoder.from_checkpoint(original).embed(torch.tensor([IDS]))
    whole = Decoder.from_checkpoint(original)
    x, positions = x_c, whole.layers[0].positions(len(IDS))
    for number, layer in enumerate(whole.layers[:4]):
        x = layer(x, *positions)
        if number in kept:
            x_c = decoder.layers[number](x_c, *positions)
            found = errors[kept.index(number)].accumulated
            assert found == pytest.approx(relative_error(x_c, x), rel=1e-4, abs=1e-6)
    # Without the record nothing says which layers these are.
    del config["paredown"]
    (tmp_path / "cut" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="cannot be compared"):
        layer_errors(original, Checkpoint.open(tmp_path / "cut"), IDS)


def test_an_error_of_nothing_is_nothing() -> None:
    assert relative_error(torch.zeros(3), torch.zeros(3)) == 0
    assert relative_error(torch.ones(3), torch.zeros(3)) == np.inf
    assert relative_error(torch.tensor([3.0, 0.0]), torch.tensor([3.0, 4.0])) == 0.8
