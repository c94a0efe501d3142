"""Leave one out: figures against single runs, the table, the picture, the verb."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from safetensors.torch import load_file, save_file

from fakes.random_text import random_text
from fakes.tiny_models import VARIANTS
from paredown.cli import main as cli
from paredown.compress.activations import ActivationGrid, round_activations
from paredown.compress.compress import compress
from paredown.compress.quantize.kv_cache import round_dynamic
from paredown.compress.quantize.rtn import RTN
from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.evaluate.quality.quality import Quality
from paredown.evaluate.quality.simulated import Variant, measure_variants
from paredown.formats.quantize import quantize
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.optimize.kv_sensitivity import measure_kv_sensitivity
from paredown.optimize.point_rounding import POINT_NAMES, PointRounding, points
from paredown.optimize.sensitivity import (
    SensitivityResult,
    measure_sensitivity,
    parse_format,
    parse_kinds,
    recovered,
)
from paredown.optimize.sensitivity_plot import draw_sensitivity, write_report

SPEC = FORMATS["int4-g32"]
GRID = ActivationGrid(dtype="int4", granularity="token")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    VARIANTS["llama-tied"](folder, torch.bfloat16, 0)
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def result(checkpoint) -> SensitivityResult:
    kinds = ["layer", "role", "module"]
    rounding = PointRounding(grid=GRID)
    return measure_sensitivity(checkpoint, random_text(), SPEC, kinds, RTN(), rounding)


def rounded(checkpoint: Checkpoint, chosen) -> dict[str, torch.Tensor]:
    """Values of the chosen (layer, role), by formats/ alone."""
    weights = {}
    for layer in range(checkpoint.spec.num_layers):
        for role in checkpoint.spec.linear_shapes(0):
            if chosen(layer, role):
                stored = checkpoint.tensors[checkpoint.linear_name(role, layer) + ".weight"]
                weight = quantize(stored.to_float32(), SPEC, "bf16")
                weights[f"layers.{layer}.{role}.weight"] = torch.from_numpy(weight.at_work())
    return weights


def test_weights_are_quantized_alone_and_left_out(checkpoint, result) -> None:
    rows = {row.name: row for row in result.weights.rows}
    assert len(rows) == 2 + 4 + 14
    cases = {
        "layer 1": lambda layer, role: layer == 1,
        "gate up": lambda layer, role: role in ("gate", "up"),
        "layer 0 v": lambda layer, role: (layer, role) == (0, "v"),
    }
    decoder = Decoder.from_checkpoint(checkpoint)
    all_weights = rounded(checkpoint, lambda layer, role: True)
    for name, chosen in cases.items():
        own = rounded(checkpoint, chosen)
        others = {key: values for key, values in all_weights.items() if key not in own}
        variants = [Variant(weights=own), Variant(weights=others), Variant(weights=all_weights)]
        (alone, all_but, everything), plain = measure_variants(decoder, variants, random_text())
        assert rows[name].alone == alone
        assert rows[name].all_but == all_but
        assert result.weights.everything == everything
        assert result.plain == plain
        gain = everything.kl_divergence - all_but.kl_divergence
        assert recovered(rows[name], result.weights) == gain


@pytest.mark.parametrize("name", ["llama-tied", "llama-gqa"])
def test_the_output_layer_is_a_part_where_it_is_asked_for(name: str, tmp_path) -> None:
    VARIANTS[name](tmp_path, torch.bfloat16, 0)
    checkpoint = Checkpoint.open(tmp_path)
    found = measure_sensitivity(checkpoint, random_text(), SPEC, ["layer"], RTN(), with_output=True)
    *_, row = found.weights.rows
    assert [one.name for one in found.weights.rows] == ["layer 0", "layer 1", "output layer"]
    output = checkpoint.names.embedding if name == "llama-tied" else checkpoint.names.output
    values = checkpoint.tensors[f"{output}.weight"].to_float32()
    assert row.num_weights == values.size
    head = torch.from_numpy(quantize(values, SPEC, "bf16").at_work())
    layers = rounded(checkpoint, lambda layer, role: True)
    decoder = Decoder.from_checkpoint(checkpoint)
    variants = [
        Variant(weights={"output.weight": head}),
        Variant(weights=layers),
        Variant(weights={**layers, "output.weight": head}),
    ]
    (alone, all_but, everything), _ = measure_variants(decoder, variants, random_text())
    assert (row.alone, row.all_but) == (alone, all_but)
    assert found.weights.everything == everything
    assert alone.kl_divergence > 0


def test_points_are_rounded_alone_and_left_out(checkpoint, result) -> None:
    table = result.activations
    known = points(checkpoint.spec)
    assert [row.name for row in table.rows] == [POINT_NAMES[point] for point in known]
    decoder = Decoder.from_checkpoint(checkpoint)

    for point in ("embedding", "scores", "mlp_sum", "logits"):
        row = table.rows[known.index(point)]
        for wanted, ours in (({point}, row.alone), (set(known) - {point}, row.all_but)):
            # The same through taps of the decoder's own, beside a plain one.
            tapped = Decoder.from_checkpoint(checkpoint)
            for place in (tapped, *tapped.layers):
                place.tap = partial(round_at, wanted)
            (quality,), _ = measure_variants(tapped, [Variant()], random_text(), decoder)
            assert ours == quality


def round_at(wanted: set[str], point: str, x: torch.Tensor) -> torch.Tensor:
    return round_activations(x, GRID).values if point in wanted else x


def test_keys_and_values_of_a_layer_are_rounded_alone_and_left_out(checkpoint) -> None:
    text = random_text()
    table = measure_kv_sensitivity(checkpoint, text, "int4")
    assert [row.name for row in table.rows] == ["layer 0", "layer 1"]
    decoder = Decoder.from_checkpoint(checkpoint)

    def by_hand(layers: set[int]) -> Quality:
        taps = {
            f"layers.{layer}.{point}": partial(round_dynamic, dtype="int4")
            for layer in layers
            for point in ("k", "v")
        }
        return measure_variants(decoder, [Variant(taps=taps)], text)[0][0]

    assert table.everything == by_hand({0, 1})
    assert table.rows[0].alone == table.rows[1].all_but == by_hand({0})
    assert table.rows[1].alone == table.rows[0].all_but == by_hand({1})
    assert table.everything.kl_divergence > table.rows[0].alone.kl_divergence > 0


def test_json_has_every_figure(result) -> None:
    read = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert read["weights"]["what"] == "int4-g32"
    assert read["activations"]["rows"][5]["alone"]["kl_divergence"] >= 0
    assert {"plain", "protocol", "model"} <= set(read)


@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_has_all_rows(result, dark, tmp_path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(draw_sensitivity(result, dark=dark))
    pixels = imread(path)[..., :3]
    paper = pixels[0, 0]
    assert (paper.mean() < 0.3) == dark
    # Something of the blue bars and of the orange dots is there.
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
        near = np.abs(pixels - np.array(colour) / 255).max(-1) < 0.02
        assert near.sum() > 50


def test_a_report_appears_whole(result, tmp_path) -> None:
    write_report(result, tmp_path / "report")
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "sensitivity.png", "sensitivity-dark.png", "sensitivity.json"
    }  # fmt: skip


def test_what_cannot_be_is_said_before_the_work(checkpoint, tmp_path) -> None:
    with pytest.raises(ConfigError, match="no such quantized format"):
        parse_format("bf16")
    with pytest.raises(ConfigError, match="no such parts"):
        parse_kinds("layer,block")
    assert parse_kinds("module, layer,layer") == ("layer", "module")
    with pytest.raises(UnsupportedError, match=r"layers\.0\.\w+\.weight: groups of 128"):
        measure_sensitivity(checkpoint, random_text(), FORMATS["int4-g128"], ["layer"], RTN())
    compress(checkpoint, tmp_path / "small", "int8")
    with pytest.raises(UnsupportedError, match="compressed already"):
        measure_sensitivity(
            Checkpoint.open(tmp_path / "small"), random_text(), SPEC, ["layer"], RTN()
        )


def test_weights_that_are_no_numbers_are_named(tmp_path) -> None:
    VARIANTS["llama-tied"](tmp_path, torch.float32, 0)
    checkpoint = Checkpoint.open(tmp_path)
    name = checkpoint.linear_name("down", 1) + ".weight"
    tensors = load_file(tmp_path / "model.safetensors")
    tensors[name][3, 4] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"layers\.1\.down\.weight"):
        measure_sensitivity(Checkpoint.open(tmp_path), random_text(), SPEC, ["layer"], RTN())


def test_the_verb_prints_a_table_that_fits(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = tmp_path / "text.txt"
    text.write_text("It is a truth universally acknowledged, that a single man " * 3)
    words = ["sensitivity", "--text", str(text), "--tokens", "24", "--by", "layer"]
    assert cli.main([*words, "--activations", "--report", str(tmp_path / "report")]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "layer 4" in shown
    assert "softmax input" in shown
    assert "\u2026" not in shown
    assert (tmp_path / "report" / "sensitivity.png").is_file()
    assert "keys and values" not in shown
    assert cli.main([*words, "--kv", "int4"]) == 0
    shown = capsys.readouterr().out
    assert "keys and values in int4" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert cli.main([*words, "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["kv"] is None
    assert read["activations"] is None
    assert [row["name"] for row in read["weights"]["rows"]] == [f"layer {i}" for i in range(5)]


@pytest.mark.parametrize(
    "words",
    [
        ["--format", "int9"],
        ["--by", "head"],
        ["--activations", "--grid", "int8"],
        ["--tokens", "0"],
        ["--kv", "bf16"],
    ],
)
def test_the_verb_refuses_what_makes_no_sense(words, capsys) -> None:
    assert cli.main(["sensitivity", *words]) == cli.EXIT_BAD_INPUT
    assert "paredown: " in capsys.readouterr().err
