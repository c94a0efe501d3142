"""The cost of pruning one part."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.random_text import random_text
from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.errors import ConfigError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.prune_sensitivity import (
    measure_cut_sensitivity,
    measure_layer_sensitivity,
    measure_prune_sensitivity,
)
from paredown.optimize.report_sensitivity import SensitivityConfig, report_sensitivity

WINDOWS = np.random.default_rng(3).integers(0, VOCAB_SIZE, (4, 48))
CALIBRATION = Calibration(windows_NT=WINDOWS, source="random tokens")
SIZES = {"num_hidden_layers": 3, "initializer_range": 0.15}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("models") / "llama"
    make_model("llama", torch.float32, 0, **SIZES).save_pretrained(folder)
    return Checkpoint.open(folder)


def test_parts_that_are_not_pruned_cost_nothing(source: Checkpoint, tmp_path: Path) -> None:
    compress(source, tmp_path / "out", "magnitude-50")
    pruned = Checkpoint.open(tmp_path / "out")
    table = measure_prune_sensitivity(
        source, pruned, "magnitude-50", random_text(), ["layer", "role"]
    )
    assert table.everything.kl_divergence > 0
    layers = [row for row in table.rows if row.kind == "layer"]
    assert len(layers) == 3
    for row in table.rows:
        assert row.alone.kl_divergence > 0
        assert row.num_weights > 0
    same = measure_prune_sensitivity(source, source, "nothing", random_text(), ["layer"])
    assert all(row.alone.kl_divergence == pytest.approx(0, abs=1e-9) for row in same.rows)


def test_a_layer_that_adds_nothing_is_not_missed(tmp_path: Path) -> None:
    model = make_model("llama", torch.float32, 0, **SIZES)
    quiet = model.model.layers[1]
    quiet.self_attn.o_proj.weight.data.zero_()
    quiet.mlp.down_proj.weight.data.zero_()
    model.save_pretrained(tmp_path / "model")
    table = measure_layer_sensitivity(Checkpoint.open(tmp_path / "model"), random_text())
    losses = [row.alone.kl_divergence for row in table.rows]
    assert losses[1] == pytest.approx(0, abs=1e-9)
    assert min(losses[0], losses[2]) > 1e-4
    assert [row.name for row in table.rows] == ["layer 0", "layer 1", "layer 2"]


@pytest.mark.parametrize(
    ("cut", "role"), [(CutNeurons(share=0.5), "up"), (CutHeads(share=0.5), "v")]
)
def test_a_layer_without_the_units_loses_nothing_by_its_cut(
    cut: CutNeurons | CutHeads, role: str, tmp_path: Path
) -> None:
    model = make_model("llama", torch.float32, 0, **SIZES)
    quiet = model.model.layers[1]
    weight = {"up": quiet.mlp.up_proj, "v": quiet.self_attn.v_proj}[role].weight.data
    weight[: len(weight) // 2] = 0
    model.save_pretrained(tmp_path / "model")
    source = Checkpoint.open(tmp_path / "model")
    table = measure_cut_sensitivity(source, cut, "cut", random_text(), CALIBRATION)
    losses = [row.alone.kl_divergence for row in table.rows]
    assert losses[1] == pytest.approx(0, abs=1e-6)
    assert min(losses[0], losses[2]) > 1e-4
    others = [row.all_but.kl_divergence for row in table.rows]
    assert others[1] == pytest.approx(table.everything.kl_divergence, rel=0.02)
    shapes, after = source.spec.linear_shapes(0), cut.check(source.spec).linear_shapes(0)
    gone = sum(a * b for a, b in shapes.values()) - sum(a * b for a, b in after.values())
    assert [row.num_weights for row in table.rows] == 3 * [gone]


def test_experts_are_cut_too(tmp_path: Path) -> None:
    sizes = {"moe_intermediate_size": 96, "shared_expert_intermediate_size": 192}
    make_model("qwen2_moe", torch.float32, 0, **sizes).save_pretrained(tmp_path / "model")
    source = Checkpoint.open(tmp_path / "model")
    cut = CutNeurons(share=1 / 3)
    table = measure_cut_sensitivity(source, cut, "cut", random_text(), CALIBRATION)
    assert all(row.alone.kl_divergence > 0 for row in table.rows)


def test_a_cut_that_cannot_be_is_refused_before_work(source: Checkpoint) -> None:
    cut = CutHeads(share=0.99)
    with pytest.raises(ConfigError, match="key-value heads"):
        measure_cut_sensitivity(source, cut, "cut", random_text(), CALIBRATION)


def test_cuts_have_no_such_table(source: Checkpoint, tmp_path: Path) -> None:
    make_model("llama", torch.float32, 0, num_hidden_layers=2).save_pretrained(tmp_path / "cut")
    cut = Checkpoint.open(tmp_path / "cut")
    with pytest.raises(UnsupportedError, match="changes the layers"):
        measure_prune_sensitivity(source, cut, "prune-layers-1", random_text(), ["layer"])


@pytest.mark.parametrize(
    "name",
    ["prune-layers-1", "prune-ffn-25-int8", "prune-ffn-25-wanda-50", "wanda-50-recover-9000"],
)
def test_what_has_no_parts_is_refused_before_work(name: str) -> None:
    with pytest.raises(ConfigError, match="one cut of neurons or heads"):
        report_sensitivity("nosuch", SensitivityConfig(prune=name))


@pytest.mark.parametrize("name", ["prune-heads-50", "magnitude-sensitivity-50"])
def test_recipes_by_name(name: str, source: Checkpoint, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        "paredown.optimize.report_sensitivity.calibration_windows", lambda *_: CALIBRATION
    )
    write_byte_tokenizer(source.path)
    text = tmp_path / "text.txt"
    text.write_text("It was the best of times, it was the worst of times. " * 4)
    config = SensitivityConfig(format="int8", prune=name, parts="layer", text=text, num_tokens=100)
    pruned = report_sensitivity(source.path, config).pruned
    assert pruned is not None
    assert (pruned.what, len(pruned.rows)) == (name, 3)
    assert pruned.everything.kl_divergence > 0
