"""Writes a checkpoint folder with every tensor in one float dtype."""

from collections.abc import Iterator
from pathlib import Path

from paredown.compress.convert.packed_modules import PackedModules
from paredown.errors import naming
from paredown.formats.floating import cast
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.folder_files import copy_files, float_config, name_dtype, write_config
from paredown.models.files.output_folder import Finish, output_folder
from paredown.models.files.shard_writer import write_shards
from paredown.progress import OnProgress
from paredown.spec.weight import ScaleDType


def write_floats(
    dtype: ScaleDType, source: Checkpoint, output: Path, on_progress: OnProgress, finish: Finish
) -> dict[str, int]:
    """Dequantizes linear layers and rounds all tensors to `dtype`. Returns by tensor how many
    values exceeded its range and became its largest. Raises CheckpointError or OutputError."""
    clamped: dict[str, int] = {}
    modules = PackedModules(source)

    def tensors() -> Iterator[tuple[str, StoredTensor]]:
        done: set[str] = set()
        for number, name in enumerate(source.tensors):
            on_progress("writing", number / len(source.tensors))
            owner = modules.owner(name)
            if owner in done:
                continue
            if owner is not None:
                done.add(owner)
                name = f"{owner}.weight"
            with naming(name):
                values = (
                    source.tensors[name].to_float32()
                    if owner is None
                    else modules.weight(owner).dequantize()
                )
                result = cast(values, dtype)
            if result.num_clamped:
                clamped[name] = result.num_clamped
            yield name, result.tensor

    config = float_config(source.config)
    name_dtype(config, dtype)
    with output_folder(output) as folder:
        copy_files(source.path, folder)
        write_shards(folder, tensors())
        write_config(folder, config)
        Checkpoint.open(folder)
        finish(folder)
    on_progress("writing", 1.0)
    return clamped
