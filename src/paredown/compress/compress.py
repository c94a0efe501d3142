"""Compresses a whole checkpoint by a recipe, from one standard folder to another.

Quantized formats apply to linear layers. Embeddings, norms and biases keep their values unless a
transform scaled them. Float formats cast every tensor. Without calibration, tensors are converted
one by one; memory holds one of them and a bounded number of finished bytes. With calibration the
layers are made first, one by one (compress/calibrate/walk.py), and lie on disk until they are
written. What is pruned stays in floats, with zeros, unless it is quantized too.

An output layer that was tied to the embedding becomes a tensor of its own when it is quantized.
The embedding, of which a step reads single rows, stays in floats.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.disk import CalibrationDisk
from paredown.compress.calibrate.gradients import (
    collect_gradients,
    gradient_fingerprint,
    gradient_workspace_path,
)
from paredown.compress.calibrate.memory import predict_memory
from paredown.compress.calibrate.source_digest import source_digest
from paredown.compress.calibrate.stack import check_texts
from paredown.compress.calibrate.walk import walk
from paredown.compress.calibrate.walk_plan import WalkPlan
from paredown.compress.calibrate.workspace import open_workspace, workspace_path
from paredown.compress.checked_recipe import CheckedRecipe, check_recipe
from paredown.compress.choose_shares import measure_curves, needs_curves, with_chosen_shares
from paredown.compress.compress_result import CompressResult, MadeLayers
from paredown.compress.folder_job import FinishCompress, FolderJob
from paredown.compress.prune.method import Gradients
from paredown.compress.recipe import Recipe
from paredown.errors import ConfigError, naming
from paredown.formats.floating import check_stored
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.output_folder import check_output_folder
from paredown.progress import OnProgress

# The bytes of the source that are hashed at once.
_HASHED_BYTES = 16 << 20
# The share of the walk in a calibrated run.
_WALK_SHARE = 0.95


def compress(
    source: Checkpoint,
    output: Path,
    recipe: Recipe | CheckedRecipe | str,
    *,
    overwrite: bool = False,
    calibration: Calibration | None = None,
    layers: MadeLayers | None = None,
    on_progress: OnProgress | None = None,
    finish: FinishCompress | None = None,
) -> CompressResult:
    """Writes `source` by a recipe, or its name, to the folder `output`.

    The folder appears whole or not at all; the written files are opened and checked before.
    `finish` is called with the folder and the result's notes and may add to it; if it raises, no
    folder is left behind. A killed calibrated run resumes where it was when it is started again.
    With `layers` nothing is calibrated: the result has those layers, bit for bit.

    Raises ConfigError for an unknown recipe or a missing calibration, UnsupportedError for one that
    this model cannot have, CapacityError without room in memory or on disk, and OutputError.
    """
    report = on_progress or (lambda what, share: None)
    checked = recipe if isinstance(recipe, CheckedRecipe) else check_recipe(source, recipe)
    assert checked.source is source, "the recipe was checked for another source"
    finish = finish or (lambda folder, notes: None)
    if not checked.recipe.needs_calibration:
        checked = with_chosen_shares(checked, {})
        return FolderJob(checked, finish).write(output, overwrite, report)
    calibration = _required(calibration, checked.recipe)
    check_texts(source.spec, calibration)
    if layers is not None:
        job = FolderJob(checked, finish)
        job.take_layers(layers)
        return replace(job.write(output, overwrite, report), calibration=calibration.source)
    check_output_folder(output, overwrite)
    memory_bytes, disk_bytes = _require_room(checked, calibration, output)
    check_values(source)
    checked = _with_shares(checked, calibration, output, report)
    job = FolderJob(checked, finish)
    fingerprint = _fingerprint(source, checked.recipe, calibration)
    with ExitStack() as stack:
        gradients = _gradients(checked, calibration, output, stack, report)
        workspace = stack.enter_context(open_workspace(workspace_path(output), fingerprint))
        plan = WalkPlan(checked=checked, calibration=calibration, gradients=gradients)
        walk(plan, workspace, lambda what, share: report(what, _WALK_SHARE * share))
        job.take(workspace.tensors())
        job.notes = workspace.notes
        if workspace.resumed:
            job.notes.append("went on with what an interrupted run had finished")

        def rest(what: str, share: float) -> None:
            report(what, _WALK_SHARE + (1 - _WALK_SHARE) * share)

        return replace(
            job.write(output, overwrite, rest),
            calibration=calibration.source,
            predicted_bytes=memory_bytes,
            predicted_disk_bytes=disk_bytes,
        )


def check_values(source: Checkpoint) -> None:
    """Reads all weights. Raises CheckpointError, with the tensor's name, if one is not finite."""
    for name, tensor in source.tensors.items():
        with naming(f"tensor {name}"):
            check_stored(tensor)
        source.release()


def _require_room(
    checked: CheckedRecipe, calibration: Calibration, output: Path
) -> tuple[int, int]:
    """Returns the bytes of memory and of disk at the peaks of the calibration. Raises
    CapacityError."""
    source = checked.source
    memory = predict_memory(
        source.spec,
        calibration.num_tokens,
        needs_hessian=any(map(checked.needs_hessian, (*checked.schemes, *checked.prunings))),
        has_transforms=bool(checked.recipe.transforms),
        num_answer_tokens=calibration.num_answer_tokens,
    )
    memory.require()
    disk = CalibrationDisk(
        num_sequences=calibration.num_sequences,
        num_tokens=max(calibration.num_tokens, calibration.num_answer_tokens),
        hidden_size=source.spec.hidden_size,
        heads_size=max(layer.attention.query_size for layer in source.spec.layer_counts),
        num_encoded=0 if source.spec.encoder is None else calibration.num_tokens,
    )
    disk.require(workspace_path(output))
    return memory.total, disk.total


def _with_shares(
    checked: CheckedRecipe, calibration: Calibration, output: Path, report: OnProgress
) -> CheckedRecipe:
    """Returns the recipe with the shares that its budgets choose. Losses are measured in a
    workspace of their own, which begins anew after a kill."""
    if not needs_curves(checked):
        return with_chosen_shares(checked, {})
    place = workspace_path(output.with_name(f"{output.name}.losses"))
    with open_workspace(place, secrets.token_hex()) as workspace:
        curves = measure_curves(checked, calibration, workspace, report)
    return with_chosen_shares(checked, curves)


def _gradients(
    checked: CheckedRecipe,
    calibration: Calibration,
    output: Path,
    stack: ExitStack,
    report: OnProgress,
) -> Mapping[str, Gradients]:
    """Returns the gradients of the modules whose pruners ask for them. They lie in a workspace that
    `stack` closes."""
    names = [name for name, one in checked.prunings.items() if one.step.pruner.needs_gradients]
    if not names:
        return {}
    fingerprint = gradient_fingerprint(checked.source, calibration, names)
    workspace = stack.enter_context(open_workspace(gradient_workspace_path(output), fingerprint))
    return collect_gradients(checked.source, calibration, names, workspace, report)


def _required(calibration: Calibration | None, recipe: Recipe) -> Calibration:
    if calibration is None:
        raise ConfigError(
            "the recipe needs a calibration text",
            seen=recipe.name,
            remedy="Give one (Calibration), or use a recipe without calibration.",
        )
    return calibration


def _fingerprint(source: Checkpoint, recipe: Recipe, calibration: Calibration) -> str:
    """Returns a hash of every input that determines the bytes of a calibrated run."""
    parts = [
        source_digest(source),
        json.dumps(source.config, sort_keys=True),
        repr(replace(recipe, name="")),
        calibration.digest,
        torch.__version__,
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
