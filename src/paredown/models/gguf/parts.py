"""A model in one GGUF file, or split into several: NAME-00001-of-00003.gguf and so on.

The first part has all metadata. Each part states its number (`split.no`, from 0), the number of
parts (`split.count`), and the tensors of all parts together (`split.tensors.count`).
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError
from paredown.models.gguf.file import MappedGGUF, read_gguf
from paredown.models.gguf.header import GGUFPlace, Value
from paredown.shown import shown

NUMBER, COUNT, NUM_TENSORS = "split.no", "split.count", "split.tensors.count"
_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_REMEDY = "Download all parts of the model again, into one folder and under their own names."


class GGUFParts:
    """All parts as one file, in their order; `path` is that of the first."""

    def __init__(self, files: Sequence[MappedGGUF]) -> None:
        """Raises CheckpointError for a tensor that appears in two parts."""
        self.files = files
        self.path = files[0].path
        self.metadata: Mapping[str, Value] = files[0].metadata
        self._owners: dict[str, MappedGGUF] = {}
        places: dict[str, GGUFPlace] = {}
        for file in files:
            for name, place in file.places.items():
                if name in places:
                    raise CheckpointError(
                        f"{file.path}: tensor {name!r} lies in another part too",
                        seen=self._owners[name].path.name,
                        remedy=_REMEDY,
                    )
                self._owners[name] = file
                places[name] = place
        self.places: Mapping[str, GGUFPlace] = places

    @property
    def file_bytes(self) -> int:
        return sum(file.file_bytes for file in self.files)

    def rows(self, name: str) -> npt.NDArray[np.uint8]:
        """See MappedGGUF."""
        return self._owners[name].rows(name)


def read_parts(path: Path) -> GGUFParts:
    """Maps a file and, if it is a part, all the others. Raises CheckpointError for a part that is
    missing or does not match its name, and whatever `read_gguf` raises."""
    named = read_gguf(path)
    count = _integer(named, COUNT, 1)
    if count <= 1:
        return GGUFParts([named])
    files = [_part(part, number, count) for number, part in enumerate(_paths(path, count))]
    found = GGUFParts(files)
    wanted = _integer(files[0], NUM_TENSORS, len(found.places))
    if len(found.places) != wanted:
        raise CheckpointError(
            f"{found.path}: the parts of the model do not have all tensors",
            seen=f"{len(found.places)}, {NUM_TENSORS} {wanted}",
            remedy=_REMEDY,
        )
    return found


def read_metadata(path: Path) -> Mapping[str, Value]:
    """Reads a model's metadata from its file, or from the first part, given any part's path. Other
    parts are not read. Raises whatever `read_parts` raises."""
    named = read_gguf(path)
    count = _integer(named, COUNT, 1)
    if count <= 1 or _integer(named, NUMBER, 0) == 0:
        return named.metadata
    return _part(_paths(path, count)[0], 0, count).metadata


def _paths(path: Path, count: int) -> list[Path]:
    name = _NAME.fullmatch(path.name)
    if name is None or int(name["count"]) != count:
        raise CheckpointError(
            f"{path} is one of several parts, and its name does not say so",
            seen=f"{COUNT} {count}",
            remedy=f"Name the parts NAME-00001-of-{count:05}.gguf and so on.",
        )
    suffix = path.name[-len(".gguf") :]
    return [
        path.with_name(f"{name['stem']}-{number:05}-of-{count:05}{suffix}")
        for number in range(1, count + 1)
    ]


def _part(path: Path, number: int, count: int) -> MappedGGUF:
    file = read_gguf(path)
    seen = _integer(file, NUMBER, -1), _integer(file, COUNT, 1)
    if seen != (number, count):
        raise CheckpointError(
            f"{path} is not the part that its name says",
            seen=f"{NUMBER} {seen[0]}, {COUNT} {seen[1]}",
            remedy=_REMEDY,
        )
    return file


def _integer(file: MappedGGUF, key: str, default: int) -> int:
    value = file.metadata.get(key, np.int64(default))
    if not isinstance(value, np.integer):
        raise CheckpointError(
            f"{file.path}: {key} is no integer",
            seen=shown(value, 200),
            remedy=_REMEDY,
        )
    return int(value)
