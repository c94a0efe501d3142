"""Compresses a whole checkpoint by a recipe, from one standard folder to another.

Quantized formats apply to linear layers. Embeddings, norms and biases keep their values unless a
transform scaled them. Float formats cast every tensor. Without calibration, tensors are converted
one by one; memory holds one of them and a bounded number of finished bytes. With calibration the
layers are made first, one by one (compress/calibrate/walk.py), and lie on disk until they are
written.

An output layer that was tied to the embedding becomes a tensor of its own when it is quantized.
The embedding, of which a step reads single rows, stays in floats.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.disk import CalibrationDisk
from paredown.compress.calibrate.memory import predict_memory
from paredown.compress.calibrate.source_digest import source_digest
from paredown.compress.calibrate.walk import WalkPlan, walk
from paredown.compress.calibrate.workspace import open_workspace, workspace_path
from paredown.compress.checked_recipe import CheckedRecipe, check_recipe
from paredown.compress.portability import portability_notes
from paredown.compress.quantize.method import LayerTarget
from paredown.compress.recipe import Recipe
from paredown.compress.schemes import Scheme, SchemeRow, scheme_rows
from paredown.compress.size import checkpoint_bits_per_weight
from paredown.errors import ConfigError, naming
from paredown.formats.floating import cast, check_stored
from paredown.formats.stored.kv_scheme import KV_SCHEMES
from paredown.formats.stored.stored_format import Layout
from paredown.formats.stored.table import stored_tensors, written_format
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.models.check_tensors import router_modules
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.folder_files import copy_files, name_dtype, write_config
from paredown.models.files.output_folder import check_output_folder, output_folder
from paredown.models.files.shard_writer import write_shards
from paredown.models.roles import linear_places
from paredown.models.stored_inputs import with_stored_inputs
from paredown.progress import OnProgress
from paredown.spec.weight import ActivationDType, ScaleDType, WeightSpec

# The bytes of the source that are hashed at once.
_HASHED_BYTES = 16 << 20
# The share of the walk in a calibrated run.
_WALK_SHARE = 0.95


FinishCompress = Callable[[Path, tuple[str, ...]], None]


@dataclass(frozen=True, kw_only=True)
class CompressResult:
    """The written checkpoint, and what was not done as asked.

    `bits_per_weight`  bits of all stored tensors over the parameters of the source
    `file_bytes`       size of the safetensors files
    `num_quantized`    linear layers stored as codes, including the output layer
    `kept`             tensors left unchanged in a quantized format (norms, embeddings, ...)
    `untied`           the output layer was tied to the embedding and became a tensor of its own
    `clamped`          values beyond the format's range that became its largest, by tensor
    `schemes`          the schemes of the linear layers
    `notes`            notes of the methods: a damping that had to grow, a fallback, ...
    `calibration`      the calibration text; None if none was needed
    `predicted_bytes`  peak memory of the calibration
    `predicted_disk_bytes`  peak disk space of its activations
    """

    name: str
    path: Path
    bits_per_weight: float
    file_bytes: int
    num_quantized: int
    kept: tuple[str, ...]
    untied: bool
    clamped: dict[str, int]
    schemes: tuple[SchemeRow, ...]
    notes: tuple[str, ...] = ()
    calibration: str | None = None
    predicted_bytes: int | None = None
    predicted_disk_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class MadeLayers:
    """A checkpoint made of the same source with the same calibration, by a recipe whose layers can
    be reused (Recipe.has_layers_of), and its notes."""

    checkpoint: Checkpoint
    notes: tuple[str, ...]


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
    recipe, schemes = checked.recipe, checked.schemes
    job = _Job(source, recipe, schemes, finish or (lambda folder, notes: None))
    if not recipe.needs_calibration:
        return job.write(output, overwrite, report)
    calibration = _required(calibration, recipe)
    if layers is not None:
        job.take_layers(layers)
        return replace(job.write(output, overwrite, report), calibration=calibration.source)
    check_output_folder(output, overwrite)
    memory_bytes, disk_bytes = _require_room(source, recipe, schemes, calibration, output)
    check_values(source)
    plan = WalkPlan(
        source=source,
        schemes=schemes,
        transforms=recipe.transforms,
        calibration=calibration,
        float_dtype=job.float_dtype,
        kv_cache=recipe.kv_cache if recipe.has_static_kv else None,
    )
    fingerprint = _fingerprint(source, recipe, calibration)
    with open_workspace(workspace_path(output), fingerprint) as workspace:
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
    source: Checkpoint,
    recipe: Recipe,
    schemes: Mapping[str, Scheme],
    calibration: Calibration,
    output: Path,
) -> tuple[int, int]:
    """Returns the bytes of memory and of disk at the peaks of the calibration. Raises
    CapacityError."""
    memory = predict_memory(
        source.spec,
        calibration.num_tokens,
        needs_hessian=any(scheme.quantizer.needs_hessian for scheme in schemes.values()),
        has_transforms=bool(recipe.transforms),
    )
    memory.require()
    disk = CalibrationDisk(
        num_sequences=calibration.num_sequences,
        num_tokens=calibration.num_tokens,
        hidden_size=source.spec.hidden_size,
        heads_size=max(layer.attention.query_size for layer in source.spec.layer_counts),
    )
    disk.require(workspace_path(output))
    return memory.total, disk.total


def _required(calibration: Calibration | None, recipe: Recipe) -> Calibration:
    if calibration is None:
        raise ConfigError(
            "the recipe needs a calibration text",
            seen=recipe.name,
            remedy="Give one (Calibration), or use a recipe without calibration.",
        )
    return calibration


class _Job:
    """Makes the tensors one by one and records what it did."""

    def __init__(
        self,
        source: Checkpoint,
        recipe: Recipe,
        schemes: Mapping[str, Scheme],
        finish: FinishCompress,
    ) -> None:
        self._source = source
        self._finish = finish
        self._recipe = recipe
        self._schemes = schemes
        self.float_dtype = _float_dtype(source, recipe)
        self._finished: Mapping[str, StoredTensor] = {}
        self._made: dict[str, dict[str, StoredTensor]] = {}
        self.notes: list[str] = []
        self._kept: list[str] = []
        self._clamped: dict[str, int] = {}

    def take(self, finished: Mapping[str, StoredTensor]) -> None:
        """Takes the tensors that calibration made, by name."""
        self._finished = finished
        for name, tensor in finished.items():
            self._made.setdefault(_module_of(name), {})[name] = tensor

    def take_layers(self, layers: MadeLayers) -> None:
        """Takes finished layers, each module's tensors in the order of a calibration."""
        made = layers.checkpoint.tensors
        names = sorted(name for name in made if _module_of(name) in self._schemes)
        self.take({name: made[name] for name in names})
        ending = f"{self._source.names.output}: "
        self.notes = [note for note in layers.notes if not note.startswith(ending)]

    @property
    def _unties(self) -> bool:
        return self._source.names.output in self._schemes and self._source.spec.output.is_tied

    def write(self, output: Path, overwrite: bool, on_progress: OnProgress) -> CompressResult:
        source = self._source
        with output_folder(output, overwrite) as folder:
            copy_files(source.path, folder)
            write_shards(folder, self._tensors(on_progress))
            write_config(folder, self._config())
            written = Checkpoint.open(folder)
            bits_per_weight = checkpoint_bits_per_weight(written, source.spec)
            self.notes += portability_notes(written)
            self._finish(folder, tuple(self.notes))
        return CompressResult(
            name=self._recipe.name,
            path=output,
            bits_per_weight=bits_per_weight,
            file_bytes=written.file_bytes,
            num_quantized=len(self._schemes),
            kept=tuple(self._kept),
            untied=self._unties,
            clamped=self._clamped,
            schemes=tuple(scheme_rows(self._schemes, source)),
            notes=tuple(self.notes),
        )

    def _tensors(self, on_progress: OnProgress) -> Iterator[tuple[str, StoredTensor]]:
        names = list(self._source.tensors)
        for done, name in enumerate(names):
            on_progress("writing", done / len(names))
            with naming(f"tensor {name}"):
                yield from self._convert(name, self._source.tensors[name])
            self._source.release()
        yield from self._added(names)
        on_progress("writing", 1.0)

    def _added(self, names: Collection[str]) -> Iterator[tuple[str, StoredTensor]]:
        """Yields the tensors that calibration added to those of the source: scales of keys and
        values."""
        for name, tensor in self._finished.items():
            if name not in names and _module_of(name) not in self._schemes:
                yield name, tensor

    def _config(self) -> dict[str, object]:
        config = dict(self._source.config)
        name_dtype(config, self.float_dtype)
        if self._unties:
            config["tie_word_embeddings"] = False
        if self._schemes:
            config["quantization_config"] = self._quantization_config()
        return with_stored_inputs(config, *self._inputs())

    def _inputs(self) -> tuple[dict[str, ActivationDType], dict[str, WeightSpec]]:
        """Returns two tables by module: the inputs that the recipe rounds differently from its
        formats, and the formats of all modules with inputs."""
        specs = {
            name: scheme.spec
            for name, scheme in self._schemes.items()
            if isinstance(scheme.stored, WeightSpec) and name != self._source.names.embedding
        }
        return {
            name: spec.activations for name, spec in specs.items() if spec != spec.as_stored
        }, specs

    def _quantization_config(self) -> dict[str, object]:
        """Builds the section of config.json: the commonest format applies to every linear module,
        others are named."""
        specs = {name: scheme.stored for name, scheme in self._schemes.items()}
        source, output = self._source, self._source.names.output
        outputs = source.names.output_names
        if output in specs:
            specs |= dict.fromkeys(outputs, specs[output])
        modules = _linear_names(source)
        common = Counter(specs[name] for name in modules if name in specs).most_common(1)
        routers = router_modules(source.spec, source.names)
        layout = Layout(
            specs=specs,
            output=output,
            floats=sorted(modules - set(specs)),
            others=[*routers, *([] if output in specs else outputs)],
            common=common[0][0] if common and modules <= set(specs) else None,
            embedding=source.names.embedding,
            kv=None if self._recipe.kv_cache is None else KV_SCHEMES[self._recipe.kv_cache],
        )
        return written_format(next(iter(specs.values()))).section(layout)

    def _convert(self, name: str, tensor: StoredTensor) -> Iterator[tuple[str, StoredTensor]]:
        output = self._source.names.output
        if self._unties and name == f"{self._source.names.embedding}.weight":
            yield from self._quantized(output, tensor)
        module = name.removesuffix(".weight")
        if module != name and module in self._schemes:
            yield from self._quantized(module, tensor)
        elif name in self._finished:
            yield name, self._finished[name]
        elif self._recipe.floats is None or tensor.dtype not in STORED_DTYPES:
            check_stored(tensor)
            self._kept.append(name)
            yield name, tensor
        else:
            result = cast(tensor.to_float32(), self.float_dtype)
            if result.num_clamped:
                self._clamped[name] = result.num_clamped
            yield name, result.tensor

    def _quantized(self, module: str, tensor: StoredTensor) -> Iterator[tuple[str, StoredTensor]]:
        """Yields the stored tensors. Scales have the dtype that config.json names, so that a
        library that uses it dequantizes to the same bits."""
        if module in self._made:
            yield from self._made[module].items()
            return
        scheme = self._schemes[module]
        target = LayerTarget(spec=scheme.spec, scale_dtype=self.float_dtype)
        done = scheme.quantizer.quantize(torch.from_numpy(tensor.to_float32()), target, None)
        self.notes += [f"{module}: {note}" for note in done.notes]
        for suffix, part in stored_tensors(done.weight).items():
            yield f"{module}.{suffix}", part


def _float_dtype(source: Checkpoint, recipe: Recipe) -> ScaleDType:
    """Returns the dtype of the folder's floats: the recipe's, or that of the source's linear
    layers."""
    if recipe.floats is not None:
        return recipe.floats
    role, layer = next(linear_places(source.spec))
    return STORED_DTYPES[source.tensors[f"{source.linear_name(role, layer)}.weight"].dtype]


def _linear_names(source: Checkpoint) -> set[str]:
    """Returns the names of the transformer layers' linear modules."""
    return {source.linear_name(role, layer) for role, layer in linear_places(source.spec)}


def _module_of(name: str) -> str:
    """Returns the module of a tensor: its name without the last part."""
    return name.rpartition(".")[0]


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
