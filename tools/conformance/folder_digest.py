"""The digest of a folder's files, by which two people know that they ran the same tests."""

import hashlib
from pathlib import Path

# Written by running tests, not part of a suite.
_WRITTEN = frozenset({"__pycache__", ".pytest_cache", "tmp"})


def folder_digest(folder: Path) -> str:
    """Returns the SHA-256, in hexadecimal, of the names and contents of all files below
    `folder`, in the order of their names. Links are not followed."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_symlink() or not path.is_file() or _WRITTEN & set(name.parts):
            continue
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{name.as_posix()}\0{content}\n".encode())
    return total.hexdigest()
