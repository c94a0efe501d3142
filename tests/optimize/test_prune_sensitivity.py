"""The cost of pruning one part."""

from pathlib import Path

import pytest
import torch

from fakes.random_text import random_text
from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.prune_sensitivity import (
    measure_layer_sensitivity,
    measure_prune_sensitivity,
)

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


def test_cuts_have_no_such_table(source: Checkpoint, tmp_path: Path) -> None:
    make_model("llama", torch.float32, 0, num_hidden_layers=2).save_pretrained(tmp_path / "cut")
    cut = Checkpoint.open(tmp_path / "cut")
    with pytest.raises(UnsupportedError, match="changes the layers"):
        measure_prune_sensitivity(source, cut, "prune-layers-1", random_text(), ["layer"])
