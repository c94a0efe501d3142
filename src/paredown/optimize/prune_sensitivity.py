"""Measures the cost of pruning one part of a model (docs/methods/sensitivity.md).

As in optimize/sensitivity.py, every part has two figures: with only that part pruned, and with all
other parts. The pruned weights are those of a checkpoint that a recipe made. With "layers" a part
is a whole layer, and being pruned means that it is left out. With a cut of neurons or heads a part
is a layer too, cut and compensated alone (compress/cut/alone.py).
"""

import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.workspace import open_workspace
from paredown.compress.cut.alone import cut_alone
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.errors import UnsupportedError
from paredown.evaluate.quality.simulated import Values, Variant, measure_variants
from paredown.evaluate.texts.text import EvalText
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.read import read_layer
from paredown.optimize.model_parts import PartKind, find_parts
from paredown.optimize.sensitivity import Sensitivity, SensitivityTable, part_names
from paredown.progress import OnCount
from paredown.spec.model import ModelSpec

# What `paredown sensitivity --prune` calls the removal of whole layers.
WHOLE_LAYERS = "layers"


def measure_prune_sensitivity(
    checkpoint: Checkpoint,
    pruned: Checkpoint,
    what: str,
    text: EvalText,
    kinds: Sequence[PartKind],
    on_progress: OnCount | None = None,
) -> SensitivityTable:
    """Returns the table of all parts of these kinds; `pruned` is the checkpoint after pruning.
    Raises UnsupportedError where its layers have other shapes, CheckpointError for predictions that
    are not numbers."""
    decoder = Decoder.from_checkpoint(checkpoint)
    if pruned.spec.layers != checkpoint.spec.layers:
        raise UnsupportedError(
            "parts are compared where pruning leaves zeros, and this recipe changes the layers",
            seen=what,
            remedy='Name a method that makes zeros ("wanda-50"), one cut of neurons or heads '
            f'("prune-ffn-25", "prune-heads-25"), or "{WHOLE_LAYERS}".',
        )
    weights = {
        f"layers.{layer}.{name}": values
        for layer in range(checkpoint.spec.num_layers)
        for name, values in read_layer(pruned, layer).items()
        if name.endswith(".weight")
    }
    parts = [part for kind in kinds for part in find_parts(decoder.spec, kind)]
    own = [{name: weights[name] for name in part_names(part)} for part in parts]
    every = {
        name: values
        for part in find_parts(decoder.spec, "module")
        for name, values in ((name, weights[name]) for name in part_names(part))
    }
    rows = [(part.kind, part.name, part.num_weights(decoder.spec)) for part in parts]
    return _table(decoder, every, own, rows, (what, text, on_progress))


def measure_layer_sensitivity(
    checkpoint: Checkpoint, text: EvalText, on_progress: OnCount | None = None
) -> SensitivityTable:
    """Returns the table of what the model loses without each layer, and with it alone."""
    decoder = Decoder.from_checkpoint(checkpoint)
    own = [_silenced(decoder, layer) for layer in range(decoder.spec.num_layers)]
    every = {name: values for one in own for name, values in one.items()}
    rows: list[tuple[PartKind, str, int]] = [
        ("layer", f"layer {layer}", _num_weights(decoder.spec, layer))
        for layer in range(decoder.spec.num_layers)
    ]
    return _table(decoder, every, own, rows, (WHOLE_LAYERS, text, on_progress))


def measure_cut_sensitivity(
    checkpoint: Checkpoint,
    cut: CutNeurons | CutHeads,
    what: str,
    text: EvalText,
    calibration: Calibration,
    on_progress: OnCount | None = None,
) -> SensitivityTable:
    """Returns the table of what the model loses by the cut of each layer, and by that of all
    others. `num_weights` are those that go. Raises what the cut's check raises, before any
    work."""
    after = cut.check(checkpoint.spec)
    with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
        place = Path(folder) / "calibration"
        with open_workspace(place, secrets.token_hex()) as workspace:
            made = cut_alone(checkpoint, cut, calibration, workspace, lambda what, share: None)
    own = [
        {f"layers.{layer}.{role}.weight": weight_OI for role, weight_OI in weights.items()}
        for layer, weights in enumerate(made)
    ]
    every = {name: values for one in own for name, values in one.items()}
    sizes = [
        _num_weights(checkpoint.spec, layer) - _num_weights(after, layer)
        for layer in range(checkpoint.spec.num_layers)
    ]
    rows: list[tuple[PartKind, str, int]] = [
        ("layer", f"layer {layer}", size) for layer, size in enumerate(sizes)
    ]
    decoder = Decoder.from_checkpoint(checkpoint)
    return _table(decoder, every, own, rows, (what, text, on_progress))


def _num_weights(spec: ModelSpec, layer: int) -> int:
    return sum(rows * columns for rows, columns in spec.linear_shapes(layer).values())


def _silenced(decoder: Decoder, layer: int) -> dict[str, Tensor]:
    """Returns weights and biases with which a layer adds nothing to the stream."""
    names = [
        f"layers.{layer}.{name}"
        for name, _ in decoder.layers[layer].named_parameters()
        if name.rsplit(".", 1)[0].split(".")[-1] in ("o", "down")
    ]
    return {name: torch.zeros_like(decoder.get_parameter(name)) for name in names}


def _table(
    decoder: Decoder,
    every: Mapping[str, Values],
    own: Sequence[Mapping[str, Values]],
    rows: Sequence[tuple[PartKind, str, int]],
    measured: tuple[str, EvalText, OnCount | None],
) -> SensitivityTable:
    what, text, on_progress = measured
    variants = [Variant(weights=every)]
    for one in own:
        others = {name: values for name, values in every.items() if name not in one}
        variants += [Variant(weights=one), Variant(weights=others)]
    (everything, *pairs), plain = measure_variants(decoder, variants, text, on_progress=on_progress)
    plain.require_numbers("the original")
    for quality in (everything, *pairs):
        quality.require_numbers("the pruned model")
    return SensitivityTable(
        what=what,
        everything=everything,
        rows=tuple(
            Sensitivity(
                kind=kind,
                name=name,
                num_weights=num_weights,
                alone=pairs[2 * at],
                all_but=pairs[2 * at + 1],
            )
            for at, (kind, name, num_weights) in enumerate(rows)
        ),
    )
