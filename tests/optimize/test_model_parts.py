"""Parts of models with experts: everything is in one, and experts of a layer stay together."""

from pathlib import Path

import pytest
import torch

from fakes.random_text import random_text
from fakes.tiny_models import VARIANTS
from paredown.compress.quantize.rtn import RTN
from paredown.evaluate.quality.simulated import Variant, measure_variants
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.roles import linear_places
from paredown.optimize.model_parts import PART_KINDS, PartKind, find_parts
from paredown.optimize.sensitivity import measure_sensitivity


@pytest.fixture
def moe(tmp_path: Path) -> Checkpoint:
    VARIANTS["qwen2-moe-every-second"](tmp_path, torch.float32, 0)
    return Checkpoint.open(tmp_path)


@pytest.mark.parametrize("kind", PART_KINDS)
def test_every_linear_layer_is_in_one_part(kind: PartKind, moe: Checkpoint) -> None:
    parts = find_parts(moe.spec, kind)
    modules = [module for part in parts for module in part.modules]
    places = [(layer, role) for role, layer in linear_places(moe.spec)]
    assert sorted(modules) == sorted(places)
    assert len({part.name for part in parts}) == len(parts)
    num_weights = sum(part.num_weights(moe.spec) for part in parts)
    assert num_weights == moe.spec.num_linear_parameters()


def test_what_is_fused_is_one_part(moe: Checkpoint) -> None:
    names = [part.name for part in find_parts(moe.spec, "role")]
    assert names == [
        "q k v",
        "o",
        "gate up",
        "down",
        "experts.gate experts.up",
        "experts.down",
        "shared.gate shared.up",
        "shared.down",
    ]
    fused = {part.name: part for part in find_parts(moe.spec, "fused")}
    assert len(fused["layer 1 experts.gate experts.up"].modules) == 12
    assert "layer 0 gate up" in fused
    assert "layer 1 gate up" not in fused


def test_sensitivity_of_experts(moe: Checkpoint) -> None:
    text = random_text(64, 32)
    result = measure_sensitivity(moe, text, FORMATS["int3-g32"], ["role"], RTN())
    losses = {row.name: row.alone.kl_divergence for row in result.weights.rows}
    assert losses["experts.down"] > 0
    assert losses["gate up"] > 0


def test_a_tap_of_the_mlp_is_that_of_every_expert(moe: Checkpoint) -> None:
    decoder = Decoder.from_checkpoint(moe)
    rows = []

    def seen(x: torch.Tensor) -> torch.Tensor:
        rows.append(x.flatten(0, -2).shape)
        return x.round(decimals=1)

    text = random_text(32, 32)
    (quality,), _ = measure_variants(decoder, [Variant(taps={"layers.1.down_input": seen})], text)
    assert quality.kl_divergence > 0
    # Two experts of each token, and the shared one, of another width.
    assert sum(num_rows for num_rows, size in rows if size == 32) == 2 * text.num_tokens
    assert sum(num_rows for num_rows, size in rows if size == 64) == text.num_tokens
