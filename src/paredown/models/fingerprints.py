"""Digests of a checkpoint's files, and when a known digest still holds."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paredown.kernels.packed_file import hash_bytes
from paredown.models.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class FileState:
    """A file's stat data, read without its content. No program can set the time of the last status
    change, so a file that is overwritten or replaced gets another state."""

    name: str
    num_bytes: int
    modified_ns: int
    changed_ns: int
    inode: int


@dataclass(frozen=True, kw_only=True)
class ContentRecord:
    """The digest that was computed for files in these states."""

    states: tuple[FileState, ...]
    digest: str

    def encode(self) -> str:
        return json.dumps({"digest": self.digest, "files": [vars(one) for one in self.states]})

    @classmethod
    def decode(cls, text: str) -> "ContentRecord":
        """Parses what `encode` wrote. Raises ValueError for any other text."""
        try:
            fields = json.loads(text)
            states = tuple(FileState(**one) for one in fields["files"])
            return cls(states=states, digest=str(fields["digest"]))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"not a record of contents: {error}") from error


def mapped_states(checkpoint: Checkpoint) -> tuple[FileState, ...]:
    """Returns the states of the files from when the checkpoint was opened."""
    return tuple(
        FileState(
            name=file_name(checkpoint, file.path),
            num_bytes=file.stat.st_size,
            modified_ns=file.stat.st_mtime_ns,
            changed_ns=file.stat.st_ctime_ns,
            inode=file.stat.st_ino,
        )
        for file in checkpoint.files
    )


def is_unchanged(checkpoint: Checkpoint) -> bool:
    """Returns whether the opened files are still in place and unchanged."""
    for file in checkpoint.files:
        try:
            now = file.path.stat()
        except OSError:
            return False
        then = file.stat
        if (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (
            then.st_ino,
            then.st_size,
            then.st_mtime_ns,
            then.st_ctime_ns,
        ):
            return False
    return True


def content_digest(checkpoint: Checkpoint, num_threads: int) -> str:
    """Returns the joint digest of the files, all of which it reads."""
    return joint_digest(file_digests(checkpoint, num_threads))


def file_digests(checkpoint: Checkpoint, num_threads: int) -> dict[str, str]:
    """Returns the digest of each safetensors file by its name, which has the folder of a head's
    module before it. Reads all of them."""
    return {
        file_name(checkpoint, file.path): hash_bytes(file.raw, num_threads)
        for file in checkpoint.files
    }


def file_name(checkpoint: Checkpoint, path: Path) -> str:
    """Returns the name of one of a checkpoint's files, inside its folder."""
    folder = checkpoint.path
    inside = path != folder and path.is_relative_to(folder)
    return path.relative_to(folder).as_posix() if inside else path.name


def joint_digest(digests: Mapping[str, str]) -> str:
    """Returns one digest for all files; their names and order count too."""
    return hashlib.sha256(json.dumps(list(digests.items())).encode()).hexdigest()


def packing_key(
    checkpoint: Checkpoint, digest: str, layout: int, options: Mapping[str, str]
) -> str:
    """Returns the name of the packed form. It depends on the files' content, the config, the
    formats in which they are read, the layout, and the load options that change what is packed."""
    parts = {
        "content": digest,
        "config": checkpoint.config,
        "weights": {module: spec.name for module, spec in checkpoint.weight_specs().items()},
        "layout": layout,
        "options": options,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
