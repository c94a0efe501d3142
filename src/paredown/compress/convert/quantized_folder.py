"""Writes a checkpoint folder whose quantized linear layers have the codes of the source, in
another stored format."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from paredown.compress.convert.packed_modules import PackedModules
from paredown.errors import UnsupportedError, naming
from paredown.formats.grid_weight import GridWeight
from paredown.formats.stored.stored_format import Layout, StoredFormat
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.folder_files import copy_files, write_config
from paredown.models.files.output_folder import Finish, check_output_folder, output_folder
from paredown.models.files.shard_writer import write_shards
from paredown.progress import OnProgress
from paredown.spec.weight import WeightSpec

GridFormat = StoredFormat[WeightSpec, GridWeight]


def write_quantized(
    stored_format: GridFormat,
    source: Checkpoint,
    output: Path,
    on_progress: OnProgress,
    finish: Finish,
) -> dict[str, int]:
    """Writes the folder. Nothing is rounded, so nothing is clamped. Raises UnsupportedError, with
    the module's name, for weights that the stored format cannot express, and CheckpointError or
    OutputError."""
    check_output_folder(output)
    modules = PackedModules(source)
    section = _section(stored_format, source, modules)
    with output_folder(output) as folder:
        copy_files(source.path, folder)
        write_shards(folder, _tensors(stored_format, source, modules, on_progress))
        config = {**source.config, "quantization_config": section}
        write_config(folder, config)
        if stored_format.file is not None:
            (folder / stored_format.file).write_text(json.dumps(section, indent=2) + "\n", "utf-8")
        Checkpoint.open(folder)
        finish(folder)
    on_progress("writing", 1.0)
    return {}


def _section(
    stored_format: GridFormat, source: Checkpoint, modules: PackedModules
) -> dict[str, object]:
    if not modules.shapes:
        raise UnsupportedError(
            "there are no quantized linear layers to convert",
            seen=f"{len(modules.floats)} linear layers in floats",
            remedy="`paredown compress` quantizes them; bf16, fp16 and fp32 are float formats.",
        )
    if modules.has_coded_embedding:
        raise UnsupportedError(
            f"{modules.embedding}: the embedding is quantized, which these formats cannot express",
            seen=str(source.path),
            remedy="Convert to a float format (bf16, fp16, fp32).",
        )
    known = source.weight_specs()
    specs = {module: known[module].as_stored for module in modules.shapes}
    for module, spec in specs.items():
        form = source.forms.get(module)
        with naming(module):
            if not spec.is_grid:
                raise UnsupportedError(
                    "its codes are stored in a way that only the tools of that format write",
                    seen="; ".join(form.notes) if form is not None else spec.name,
                    remedy="Convert to a float format (bf16, fp16, fp32).",
                )
            stored_format.check(spec, modules.shapes[module])
    if source.names.output in specs:
        specs |= dict.fromkeys(source.names.output_names, specs[source.names.output])
    layout = Layout(
        specs=specs,
        output=source.names.output,
        floats=modules.floats,
        common=Counter(specs.values()).most_common(1)[0][0],
        kv=source.kv.section,
    )
    return stored_format.section(layout)


def _tensors(
    stored_format: GridFormat, source: Checkpoint, modules: PackedModules, on_progress: OnProgress
) -> Iterator[tuple[str, StoredTensor]]:
    """Yields the tensors, with one module in memory at a time."""
    done: set[str] = set()
    for number, name in enumerate(source.tensors):
        on_progress("writing", number / len(source.tensors))
        owner = modules.owner(name)
        if owner is None:
            yield name, source.tensors[name]
        elif owner not in done:
            done.add(owner)
            with naming(owner):
                weight = modules.weight(owner)
                assert isinstance(weight, GridWeight)
                stored = replace(weight, spec=weight.spec.as_stored)
                tensors = stored_format.encode(stored)
            for suffix, tensor in tensors.items():
                yield f"{owner}.{suffix}", tensor
    if stored_format.kv_field is not None:
        yield from source.kv_scales.items()
