"""Cuts a checkpoint: removes whole units and writes the ordinary smaller one that is left."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.disk import NUM_ORIGINAL, CalibrationDisk
from paredown.compress.calibrate.memory import predict_memory
from paredown.compress.calibrate.source_digest import source_digest
from paredown.compress.calibrate.workspace import open_workspace, workspace_path
from paredown.compress.compress import check_values
from paredown.compress.cut.cut_tensors import CutTensors
from paredown.compress.cut.cut_walk import CutPlan, Walked, walk
from paredown.compress.cut.heads import CutHeads
from paredown.compress.cut.layers import CutLayers
from paredown.compress.cut.method import Cut, CutResult
from paredown.compress.encoder_recipe import check_encoder_cuts
from paredown.compress.folder_job import FinishCompress
from paredown.compress.require_floats import require_floats
from paredown.errors import ConfigError
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.config_fields import config_of
from paredown.models.files.folder_files import check_files, copy_files, float_config, write_config
from paredown.models.files.output_folder import check_output_folder, output_folder
from paredown.models.files.shard_writer import write_shards
from paredown.models.kept_layers import composed
from paredown.models.paredown_section import KEPT_LAYERS, with_key
from paredown.models.pruned_modules import with_pruned
from paredown.models.roles import linear_roles
from paredown.progress import OnProgress
from paredown.spec.model import ModelSpec

# The share of the walks in a run.
_WALK_SHARE = 0.95


def check_cuts(source: Checkpoint, steps: Sequence[Cut]) -> ModelSpec:
    """Returns the sizes that the model will have; which layers stay is decided later. Raises
    ConfigError for shares that cannot be had. Raises UnsupportedError for units that the model
    lacks, sizes that its config.json cannot express, and a source that is quantized."""
    require_floats(source)
    check_encoder_cuts(source.spec, steps)
    check_files(source.path)
    if not steps:
        raise ConfigError(
            "nothing is to be cut", seen="no step", remedy="Name one: prune-ffn-25, prune-layers-4."
        )
    spec, config = source.spec, source.config
    for cut in steps:
        after = cut.check(spec)
        if isinstance(cut, CutLayers):
            # Any layers may stay: config.json must express the first ones as well as the last.
            num = after.num_layers
            config_of(replace(spec, layers=spec.layers[:num]), config, range(num))
            config = config_of(after, config, range(cut.num, spec.num_layers))
        else:
            config = config_of(after, config)
        spec = after
    return spec


def cut(
    source: Checkpoint,
    output: Path,
    steps: Sequence[Cut],
    calibration: Calibration | None,
    *,
    name: str = "cut",
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    finish: FinishCompress | None = None,
) -> CutResult:
    """Writes `source` without the units that each of the steps removes, in order, to the folder
    `output`. Weights keep their dtypes, and their bits where nothing compensates.

    The folder appears whole or not at all; it is opened and checked before. `finish` is called with
    the folder and the notes and may add to it. A killed run goes on when it is started again.

    Raises what `check_cuts` raises, ConfigError without calibration, CapacityError without room in
    memory or on disk, CheckpointError for weights or inputs that are not finite, and OutputError.
    """
    report = on_progress or (lambda what, share: None)
    check_cuts(source, steps)
    if calibration is None:
        raise _no_calibration()
    check_output_folder(output, overwrite)
    memory_bytes, disk_bytes = _require_room(source, calibration, output)
    check_values(source)
    notes: list[str] = []
    with ExitStack() as stack:
        left = source
        for number, step in enumerate(steps):
            fingerprint = _fingerprint(source, steps[: number + 1], calibration)
            folder = _workspace(output, number)
            workspace = stack.enter_context(open_workspace(folder, fingerprint))
            plan = CutPlan(source=left, cut=step, calibration=calibration)

            def part(what: str, share: float, number: int = number) -> None:
                report(what, _WALK_SHARE * (number + share) / len(steps))

            walked = walk(plan, workspace, part)
            notes += [*workspace.notes, *_filled(left, walked), *_unread(left, step)]
            left = _cut_checkpoint(left, walked)
        report("writing", _WALK_SHARE)
        written = _write(left, output, overwrite, (notes, finish))
        report("writing", 1.0)
    return CutResult(
        name=name,
        path=output,
        share=1 - written.spec.num_parameters() / source.spec.num_parameters(),
        sizes=_sizes(source.spec, written.spec),
        kept_layers=written.kept_layers,
        file_bytes=written.file_bytes,
        notes=tuple(notes),
        calibration=calibration.source,
        predicted_bytes=memory_bytes,
        predicted_disk_bytes=disk_bytes,
    )


def _no_calibration() -> ConfigError:
    return ConfigError(
        "a cut needs a calibration text: it tells what is missed least",
        seen="none",
        remedy="Give one (Calibration).",
    )


def _cut_checkpoint(source: Checkpoint, walked: Walked) -> Checkpoint:
    """Returns what a walk left of `source`, as a checkpoint that reads its tensors from there."""
    kept = tuple(units.layer for units in walked.kept)
    layers = tuple(units.layer_spec(source.spec.layers[units.layer]) for units in walked.kept)
    spec = replace(source.spec, layers=layers)
    is_shorter = len(kept) < source.spec.num_layers
    config = config_of(spec, source.config, kept if is_shorter else None)
    numbers = composed(source.kept_layers, kept) if is_shorter else source.kept_layers
    config = with_key(config, KEPT_LAYERS, None if numbers is None else list(numbers))
    pruned = _still_pruned(source, spec, walked)
    return replace(
        source,
        spec=spec,
        config=with_pruned(config, pruned, source.names.layer_modules(spec)),
        pruned=pruned,
        tensors=CutTensors(source, spec, walked.kept, walked.made),
        blocks={},
        kept_layers=numbers,
    )


def _filled(source: Checkpoint, walked: Walked) -> list[str]:
    """Returns a note where compensation made pruned modules dense."""
    num_filled = sum(f"{name}.weight" in walked.made for name in source.pruned)
    if not num_filled:
        return []
    return [
        f"compensation filled the zeros of {num_filled} pruned modules: prune after cutting, or "
        "cut without it (compensation: null)"
    ]


def _unread(source: Checkpoint, step: Cut) -> list[str]:
    """Returns a note where other programs do not read the size of a head."""
    norms = source.spec.layers[0].norms
    if not isinstance(step, CutHeads) or norms.attention_sum is None or not step.share:
        return []
    return [
        f"Transformers reads no head_dim for {source.spec.family}: only paredown loads encoders "
        "without some of their heads"
    ]


def _still_pruned(source: Checkpoint, spec: ModelSpec, walked: Walked) -> dict[str, str]:
    """Returns the record of the pruned modules under their new names, without those whose weights
    are new."""
    found = {}
    for index, units in enumerate(walked.kept):
        for role in linear_roles(spec, index):
            before = source.linear_name(units.source_role(role), units.layer)
            if before in source.pruned and f"{before}.weight" not in walked.made:
                found[source.linear_name(role, index)] = source.pruned[before]
    return found


def _write(
    left: Checkpoint,
    output: Path,
    overwrite: bool,
    ending: tuple[list[str], FinishCompress | None],
) -> Checkpoint:
    notes, finish = ending
    with output_folder(output, overwrite) as folder:
        copy_files(left.path, folder)
        write_shards(folder, _released(left))
        write_config(folder, float_config(left.config))
        written = Checkpoint.open(folder)
        if finish is not None:
            finish(folder, tuple(notes))
    return written


def _released(left: Checkpoint) -> Iterator[tuple[str, StoredTensor]]:
    """Yields the tensors, and gives the memory of their source back."""
    for name, tensor in left.tensors.items():
        yield name, tensor
        left.release()


def _require_room(source: Checkpoint, calibration: Calibration, output: Path) -> tuple[int, int]:
    """Returns the bytes of memory and of disk at the peaks. Raises CapacityError."""
    memory = predict_memory(
        source.spec, calibration.num_tokens, needs_hessian=True, has_transforms=False
    )
    memory.require()
    disk = CalibrationDisk(
        num_sequences=calibration.num_sequences,
        num_tokens=calibration.num_tokens,
        hidden_size=source.spec.hidden_size,
        heads_size=max(layer.attention.query_size for layer in source.spec.layer_counts),
        num_more=NUM_ORIGINAL,
    )
    disk.require(workspace_path(output))
    return memory.total, disk.total


def _workspace(output: Path, number: int) -> Path:
    """Returns the workspace of a step; the first one's is that of any calibration."""
    return workspace_path(
        output if number == 0 else output.with_name(f"{output.name}.{number + 1}")
    )


def _sizes(before: ModelSpec, after: ModelSpec) -> dict[str, tuple[int, int]]:
    """Returns the sizes that differ, before and after."""
    found = {"layers": (before.num_layers, after.num_layers)}
    old, new = before.layers[0], after.layers[0]
    found["query heads"] = (old.attention.num_heads, new.attention.num_heads)
    found["key-value heads"] = (old.attention.num_kv_heads, new.attention.num_kv_heads)
    for one, other in zip(_mlps(before), _mlps(after), strict=True):
        found |= {what: (size, other[what]) for what, size in one.items() if what in other}
    return {what: sizes for what, sizes in found.items() if sizes[0] != sizes[1]}


def _mlps(spec: ModelSpec) -> list[dict[str, int]]:
    """Returns the sizes of the MLPs and of the mixtures."""
    dense = {layer.mlp.size for layer in spec.layer_counts if not layer.has_experts}
    mixtures = {
        "experts": {experts.num for experts in spec.expert_kinds},
        "neurons of an expert": {experts.size for experts in spec.expert_kinds},
        "neurons of the shared expert": {
            experts.shared_size for experts in spec.expert_kinds if experts.shared_size is not None
        },
    }
    found = {"neurons": dense} | mixtures
    return [{what: max(sizes) for what, sizes in found.items() if sizes}]


def _fingerprint(source: Checkpoint, steps: Sequence[Cut], calibration: Calibration) -> str:
    """Returns a hash of every input that determines the bytes of a run."""
    parts = [
        source_digest(source),
        json.dumps(source.config, sort_keys=True),
        repr(tuple(steps)),
        calibration.digest,
        torch.__version__,
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
