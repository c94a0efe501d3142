"""Methods beside each other on real weights and inputs: those of the built-in model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from paredown.compress.calibrate.moments import HessianSum
from paredown.compress.prune.layer_loss import layer_loss
from paredown.compress.prune.magnitude import Magnitude
from paredown.compress.prune.method import Pruned, Pruner, Seen
from paredown.compress.prune.obs import OBS
from paredown.compress.prune.pattern import NOfM, Pattern, Share
from paredown.compress.prune.refit import Refit
from paredown.compress.prune.sparse_swaps import SparseSwaps
from paredown.compress.prune.wanda import Wanda
from paredown.compress.quantize.method import Moments
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.points import input_point
from paredown.models.decoder.read import embed_tokens, load_layer
from paredown.models.resolve import resolve_model

ROOT = Path(__file__).parents[3]
LAYER = 1
ROLES = ("q", "gate", "down")
NUM_ROWS = 64
HALF = Share(share=0.5)
PATTERNS: list[Pattern] = [HALF, NOfM(n=4, m=8), NOfM(n=2, m=4)]

Layers = dict[str, tuple[torch.Tensor, Moments]]


@pytest.fixture(scope="module")
def layers() -> Layers:
    """Rows of a layer's linear layers and their moments, from a text of this repository."""
    folder = resolve_model(None)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode((ROOT / "CONTRIBUTING.md").read_text()).ids
    ids_NT = np.array(ids[: len(ids) // 64 * 64]).reshape(-1, 64)
    source = Checkpoint.open(folder)
    sums: dict[str, HessianSum] = {}

    def tap(point: str, x: torch.Tensor) -> torch.Tensor:
        sums.setdefault(point, HessianSum(x.shape[-1])).add(x)
        return x

    with torch.inference_mode():
        x_NTD = embed_tokens(source, ids_NT)
        for index in range(LAYER + 1):
            layer = load_layer(source, index)
            layer.is_fused = True
            if index == LAYER:
                layer.tap = tap
            x_NTD = layer(x_NTD, *layer.positions(64))
        weights = {role: layer.get_parameter(f"{role}.weight")[:NUM_ROWS] for role in ROLES}
        return {role: (weights[role], sums[input_point(role)].moments()) for role in ROLES}


def total(layers: Layers, method: Pruner, pattern: Pattern, *refinements: object) -> float:
    """The sum of the layers' losses."""
    found = 0.0
    for weight_OI, moments in layers.values():
        pruned: Pruned = method.prune(weight_OI, pattern, Seen(moments=moments))
        for refinement in refinements:
            pruned = refinement.refine(weight_OI, pruned, pattern, moments)  # type: ignore[attr-defined]
        found += layer_loss(weight_OI - pruned.values_OI, moments.hessian_II)
    return found


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_each_step_of_a_recipe_pays(layers: Layers, pattern: Pattern) -> None:
    magnitude = total(layers, Magnitude(), pattern)
    wanda = total(layers, Wanda(), pattern)
    swapped = total(layers, Wanda(), pattern, SparseSwaps())
    refitted = total(layers, Wanda(), pattern, Refit())
    both = total(layers, Wanda(), pattern, SparseSwaps(), Refit())
    assert wanda < magnitude
    assert swapped <= 0.8 * wanda
    assert both < refitted < wanda
    assert both < swapped


def test_finer_patterns_cost_more(layers: Layers) -> None:
    losses = [total(layers, Wanda(), pattern) for pattern in PATTERNS]
    assert losses == sorted(losses)


def test_the_exact_surgeon_is_the_oracle_of_the_rest(layers: Layers) -> None:
    few = {"q": (layers["q"][0][:16], layers["q"][1])}
    exact = total(few, OBS(), HALF)
    assert exact < total(few, Wanda(), HALF, SparseSwaps(), Refit())
