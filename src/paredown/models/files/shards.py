"""The tensors of a checkpoint folder: `model.safetensors`, or shards named by an index file."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

from paredown.errors import CheckpointError
from paredown.formats.tensor import StoredTensor
from paredown.models.files.json_file import MAX_TABLE_BYTES, read_json_object
from paredown.models.files.safetensors_file import MappedTensors, read_safetensors
from paredown.models.files.safetensors_header import TensorPlace
from paredown.models.files.whole_file import is_there
from paredown.shown import quoted

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"


class FolderTensors(Mapping[str, StoredTensor]):
    """Every tensor of every file, by name. `place(name)` tells dtype and shape without reading
    data."""

    def __init__(self, files: list[MappedTensors], names: Collection[str] | None = None) -> None:
        """Keeps only the tensors in `names`, if given."""
        self.files = files
        self._owners = {
            name: file for file in files for name in file if names is None or name in names
        }

    @property
    def file_bytes(self) -> int:
        return sum(file.file_bytes for file in self.files)

    def place(self, name: str) -> TensorPlace:
        return self._owners[name].places[name]

    def owner(self, name: str) -> Path:
        return self._owners[name].path

    def __getitem__(self, name: str) -> StoredTensor:
        return self._owners[name][name]

    def __contains__(self, name: object) -> bool:
        return name in self._owners

    def __iter__(self) -> Iterator[str]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)


def read_folder_tensors(folder: Path) -> FolderTensors:
    """Opens the folder's one file or its shards. Raises CheckpointError."""
    single, index = folder / SINGLE_NAME, folder / INDEX_NAME
    if is_there(single):
        return FolderTensors([read_safetensors(single)])
    if not is_there(index):
        found = ", ".join(sorted(entry.name for entry in folder.iterdir())) or "an empty folder"
        raise CheckpointError(
            f"{folder} has neither {SINGLE_NAME} nor {INDEX_NAME}",
            seen=found,
            remedy="Download the checkpoint in safetensors form, or convert it to that.",
        )
    weight_map = _weight_map(index)
    files = {name: read_safetensors(folder / name) for name in sorted(set(weight_map.values()))}
    for name, file_name in weight_map.items():
        if name not in files[file_name]:
            raise CheckpointError(
                f"{folder / file_name} lacks tensor {name!r}, which {INDEX_NAME} places there",
                seen=f"{len(files[file_name])} tensors",
                remedy="Download the file again.",
            )
    for file_name, file in files.items():
        stray = next((name for name in file if weight_map.get(name) != file_name), None)
        if stray is not None:
            raise CheckpointError(
                f"{folder / file_name} holds tensor {stray!r}, which {INDEX_NAME} does not place "
                "there",
                seen=weight_map.get(stray, "no entry"),
                remedy="Download the checkpoint again.",
            )
    return FolderTensors(list(files.values()))


def _is_file_name(name: object) -> TypeGuard[str]:
    """Returns whether `name` is a plain, printable file name."""
    return isinstance(name, str) and Path(name).name == name and name.isprintable()


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json_object(index, MAX_TABLE_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            f"{index} has no weight_map",
            seen=quoted(weight_map, 200),
            remedy="Download the file again.",
        )
    for name, file_name in weight_map.items():
        if not _is_file_name(file_name):
            raise CheckpointError(
                f"{index} places tensor {name!r} outside the checkpoint's folder",
                seen=file_name,
                remedy="Name files of the same folder only.",
            )
    return weight_map
