"""Writes a checkpoint's tensors in files of bounded size, as they arrive."""

import json
from collections.abc import Iterable
from pathlib import Path

from paredown.formats.tensor import StoredTensor
from paredown.models.files.safetensors_file import write_safetensors
from paredown.models.files.shards import INDEX_NAME, SINGLE_NAME

# This also bounds the memory, because tensors are held until a file is full.
SHARD_BYTES = 1_000_000_000

# The metadata that Transformers writes and expects.
METADATA = {"format": "pt"}


def write_shards(
    folder: Path, tensors: Iterable[tuple[str, StoredTensor]], shard_bytes: int = SHARD_BYTES
) -> None:
    """Writes `model.safetensors`, or an index and numbered files of at most `shard_bytes` each. A
    larger tensor gets a file of its own."""
    shards: list[list[str]] = []
    held: dict[str, StoredTensor] = {}
    held_bytes = total_bytes = 0
    for name, tensor in tensors:
        if held and held_bytes + tensor.array.nbytes > shard_bytes:
            _write(folder, len(shards), held)
            shards.append(list(held))
            held, held_bytes = {}, 0
        held[name] = tensor
        held_bytes += tensor.array.nbytes
        total_bytes += tensor.array.nbytes
    if not shards:
        write_safetensors(folder / SINGLE_NAME, held, METADATA)
        return
    _write(folder, len(shards), held)
    shards.append(list(held))
    _name_shards(folder, shards, total_bytes)


def _write(folder: Path, number: int, tensors: dict[str, StoredTensor]) -> None:
    write_safetensors(folder / _unnumbered(number), tensors, METADATA)


def _unnumbered(number: int) -> str:
    return f"model-{number + 1:05d}.safetensors"


def _name_shards(folder: Path, shards: list[list[str]], total_bytes: int) -> None:
    """Gives the shards their names, which contain the number of files and so are known only at the
    end."""
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards):
        final = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (folder / _unnumbered(number)).rename(folder / final)
        weight_map |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / INDEX_NAME).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
