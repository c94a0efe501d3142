"""FolderJob: writes a compressed checkpoint, tensor by tensor, and records what it did."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import torch

from paredown.compress.checked_recipe import CheckedRecipe
from paredown.compress.compress_result import CompressResult, MadeLayers
from paredown.compress.finish_module import finish_module
from paredown.compress.portability import portability_notes
from paredown.compress.prune.sparsity import count_zeros
from paredown.compress.schemes import scheme_rows
from paredown.compress.size import checkpoint_bits_per_weight
from paredown.errors import naming
from paredown.formats.floating import cast, check_stored
from paredown.formats.stored.kv_scheme import KV_SCHEMES
from paredown.formats.stored.stored_format import Layout
from paredown.formats.stored.table import stored_tensors, written_format
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.models.check_tensors import router_modules
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.folder_files import copy_files, name_dtype, write_config
from paredown.models.files.output_folder import output_folder
from paredown.models.files.shard_writer import write_shards
from paredown.models.pruned_modules import with_pruned
from paredown.models.roles import linear_places
from paredown.models.stored_inputs import with_stored_inputs
from paredown.progress import OnProgress
from paredown.spec.weight import ActivationDType, WeightSpec

FinishCompress = Callable[[Path, tuple[str, ...]], None]


class FolderJob:
    """Makes the tensors one by one. `notes` are those of the methods."""

    def __init__(self, checked: CheckedRecipe, finish: FinishCompress) -> None:
        self._checked = checked
        self._source = checked.source
        self._recipe = checked.recipe
        self._schemes = checked.schemes
        self._float_dtype = checked.float_dtype
        self._transposed = _transposed_names(checked.source)
        self._finish = finish
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
        names = sorted(name for name in made if self._checked.changes(_module_of(name)))
        self.take({name: made[name] for name in names})
        ending = f"{self._source.names.output}: "
        self.notes = [note for note in layers.notes if not note.startswith(ending)]

    @property
    def _unties(self) -> bool:
        return self._source.names.output in self._schemes and self._source.spec.is_tied

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
            sparsity=count_zeros(written, self._pruned()),
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
            if name not in names and not self._checked.changes(_module_of(name)):
                yield name, tensor

    def _config(self) -> dict[str, object]:
        source = self._source
        config = dict(source.config)
        name_dtype(config, self._float_dtype)
        if self._unties:
            untied = source.names.family.untied_fields
            config |= {name: untied[name] for name in untied if config.get(name) is None}
            config["tie_word_embeddings"] = False
        if self._schemes:
            config["quantization_config"] = self._quantization_config()
        config = with_pruned(config, self._pruned(), source.names.layer_modules(source.spec))
        return with_stored_inputs(config, *self._inputs())

    def _pruned(self) -> dict[str, str]:
        """Returns the patterns of all modules that were pruned, now or before."""
        now = {name: one.pattern.name for name, one in self._checked.prunings.items()}
        return {**self._source.pruned, **now}

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
        others are named. All modules of an encoder are named, since Transformers adds some to it
        that the files do not have (a pooler)."""
        specs = {name: scheme.stored for name, scheme in self._schemes.items()}
        source, output = self._source, self._source.names.output
        outputs = source.names.output_names
        if output in specs:
            specs |= dict.fromkeys(outputs, specs[output])
        modules = _linear_names(source)
        common = Counter(specs[name] for name in modules if name in specs).most_common(1)
        routers = router_modules(source.spec, source.names)
        is_whole = source.spec.generates
        layout = Layout(
            specs=specs,
            output=output,
            floats=sorted(modules - set(specs)),
            others=[*routers, *([] if output in specs else outputs)],
            common=common[0][0] if common and modules <= set(specs) and is_whole else None,
            embedding=source.names.embedding,
            kv=None if self._recipe.kv_cache is None else KV_SCHEMES[self._recipe.kv_cache],
        )
        return written_format(next(iter(specs.values()))).section(layout)

    def _convert(self, name: str, tensor: StoredTensor) -> Iterator[tuple[str, StoredTensor]]:
        output = self._source.names.output
        if self._unties and name == f"{self._source.names.embedding}.weight":
            yield from self._finished_module(output, tensor)
        module = name.removesuffix(".weight")
        if module != name and self._checked.changes(module):
            yield from self._finished_module(module, tensor)
        elif name in self._finished:
            yield name, self._finished[name]
        elif self._recipe.floats is None or tensor.dtype not in STORED_DTYPES:
            check_stored(tensor)
            self._kept.append(name)
            yield name, tensor
        else:
            result = cast(tensor.to_float32(), self._float_dtype)
            if result.num_clamped:
                self._clamped[name] = result.num_clamped
            yield name, result.tensor

    def _finished_module(
        self, module: str, tensor: StoredTensor
    ) -> Iterator[tuple[str, StoredTensor]]:
        """Yields the stored tensors. Scales have the dtype that config.json names, so that a
        library that uses it dequantizes to the same bits."""
        if module in self._made:
            yield from self._made[module].items()
            return
        if module in self._transposed:
            tensor = tensor.transposed()
        done = finish_module(self._checked.work(module), torch.from_numpy(tensor.to_float32()))
        self.notes += done.notes
        if done.weight is None:
            stored = cast(done.values_OI.numpy(), self._float_dtype).tensor
            yield f"{module}.weight", stored.transposed() if module in self._transposed else stored
            return
        for suffix, part in stored_tensors(done.weight).items():
            yield f"{module}.{suffix}", part


def _linear_names(source: Checkpoint) -> set[str]:
    """Returns the names of the transformer layers' linear modules."""
    return set(source.names.layer_modules(source.spec))


def _transposed_names(source: Checkpoint) -> set[str]:
    """Returns the names of the linear modules whose tensors lie as [in, out]."""
    return {
        source.linear_name(role, layer)
        for role, layer in linear_places(source.spec)
        if source.names.source(role).transposed
    }


def _module_of(name: str) -> str:
    """Returns the module of a tensor: its name without the last part."""
    return name.rpartition(".")[0]
