"""Shares of layers from what pruning each of them alone costs: the budget "sensitivity".

All layers are pruned alike first, at the share that is asked for, at half of it, and half-way to
everything. For each layer the KL divergence with its weights alone pruned is measured at each of
them on the validation text. The shares with the least sum of losses are then found
(compress/prune/budget.py).
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.prune.budget import LossCurve, shares_for_total
from paredown.compress.prune.pattern import Share
from paredown.compress.prunings import resolve_prunings
from paredown.compress.recipe import Recipe
from paredown.compress.steps import PruneStep, Step
from paredown.evaluate.quality.simulated import Variant, measure_variants
from paredown.evaluate.texts.validation_text import choose_validation_text
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.read import read_layer
from paredown.models.roles import linear_roles
from paredown.progress import OnProgress

# The text that decides: little of it, since layers differ by much.
_NUM_TOKENS = 1024
_WINDOW_TOKENS = 512


def with_measured_shares(
    source: Checkpoint, recipe: Recipe, calibration: Calibration | None, on_progress: OnProgress
) -> Recipe:
    """Returns the recipe with a prune step for each layer in place of those whose budget is the
    sensitivity. Raises CheckpointError for predictions that are not numbers."""
    steps: list[Step] = []
    for step in recipe.steps:
        if isinstance(step, PruneStep) and step.budget == "sensitivity":
            steps += _measured_steps(source, step, calibration, on_progress)
        else:
            steps.append(step)
    return replace(recipe, steps=tuple(steps))


def _measured_steps(
    source: Checkpoint, step: PruneStep, calibration: Calibration | None, on_progress: OnProgress
) -> list[PruneStep]:
    share = step.pattern.share
    tried = (share / 2, share, (1 + share) / 2)
    losses = []
    for one in tried:
        alike = replace(step, budget="alike", pattern=Share(share=one))
        recipe = Recipe(name=f"all layers at {one:.0%}", steps=(alike,))
        with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
            made = compress(
                source,
                Path(folder) / "alike",
                recipe,
                calibration=calibration,
                on_progress=on_progress,
            )
            losses.append(_losses(source, Checkpoint.open(made.path), on_progress))
    modules = _modules_by_layer(source, recipe)
    curves = {
        str(layer): LossCurve(
            num_weights=_num_weights(source, layer),
            shares=(0.0, *tried),
            losses=(0.0, *(found[layer] for found in losses)),
        )
        for layer in modules
    }
    shares = shares_for_total(curves, share, tried[-1])
    return [
        replace(alike, pattern=shares[str(layer)], targets=tuple(names))
        for layer, names in modules.items()
        if shares[str(layer)].share > 0
    ]


def _losses(source: Checkpoint, pruned: Checkpoint, on_progress: OnProgress) -> list[float]:
    """Returns the KL divergence with each layer alone pruned, in nats per token."""
    decoder = Decoder.from_checkpoint(source)
    text = choose_validation_text(source, None, _NUM_TOKENS, _WINDOW_TOKENS)
    variants = [Variant(weights=_weights(pruned, layer)) for layer in range(len(decoder.layers))]
    qualities, _ = measure_variants(
        decoder,
        variants,
        text,
        on_progress=lambda done, total: on_progress("measuring layers", done / total),
    )
    for quality in qualities:
        quality.require_numbers("a pruned layer")
    return [quality.kl_divergence or 0.0 for quality in qualities]


def _weights(pruned: Checkpoint, layer: int) -> dict[str, Tensor]:
    values = read_layer(pruned, layer)
    return {
        f"layers.{layer}.{role}.weight": values[f"{role}.weight"]
        for role in linear_roles(pruned.spec, layer)
    }


def _modules_by_layer(source: Checkpoint, recipe: Recipe) -> dict[int, list[str]]:
    """Returns the modules that the recipe prunes, by layer."""
    pruned = resolve_prunings(recipe, source, {})
    found: dict[int, list[str]] = {}
    for layer in range(source.spec.num_layers):
        names = source.names.modules(linear_roles(source.spec, layer), layer)
        own = [name for name in names if name in pruned]
        if own:
            found[layer] = own
    return found


def _num_weights(source: Checkpoint, layer: int) -> int:
    return sum(rows * columns for rows, columns in source.spec.linear_shapes(layer).values())
