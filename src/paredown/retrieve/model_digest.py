"""A digest of a model's files, by which an index knows the model that made its vectors."""

import hashlib
import mmap
import os
from pathlib import Path

import numpy as np

from paredown.errors import CheckpointError
from paredown.files.model_file import open_model_file
from paredown.kernels.packed_file import hash_bytes
from paredown.kernels.probe import default_num_threads
from paredown.models.files.whole_file import unreadable

# Weights, and what says how texts become vectors: tokenizer, pooling, prompts.
_SUFFIXES = (".safetensors", ".gguf", ".json", ".txt", ".model")


def model_digest(path: str | Path) -> str:
    """Returns a digest of a model's folder, or of its GGUF file: names and contents of weights,
    tokenizer and settings. Raises CheckpointError for what cannot be read, and for a folder without
    weights."""
    root = Path(path)
    files = [root] if root.is_file() else sorted(_files(root))
    if not any(one.suffix in (".safetensors", ".gguf") for one in files):
        raise CheckpointError(
            f"{root} holds no weights",
            seen=f"{len(files)} files",
            remedy="Name a model's folder or a GGUF file.",
        )
    digest = hashlib.sha256()
    for one in files:
        name = one.name if one == root else one.relative_to(root).as_posix()
        digest.update(f"{name}\0{_digest(one)}\0".encode())
    return digest.hexdigest()


def _files(root: Path) -> list[Path]:
    return [one for one in root.rglob("*") if one.suffix in _SUFFIXES and one.is_file()]


def _digest(path: Path) -> str:
    try:
        with open_model_file(path) as file:
            if not os.fstat(file.fileno()).st_size:
                return ""
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise unreadable(path, error) from error
    return hash_bytes(np.frombuffer(mapped, np.uint8), default_num_threads())
