"""A digest of a checkpoint's files, which tells whether an unfinished run had the same source."""

import hashlib

from paredown.models.checkpoint import Checkpoint

_HASHED_BYTES = 64 << 20


def source_digest(source: Checkpoint) -> str:
    """Returns the SHA-256 of the files, read one stretch at a time."""
    digest = hashlib.sha256()
    for file in source.files:
        for start in range(0, file.file_bytes, _HASHED_BYTES):
            digest.update(file.raw[start : start + _HASHED_BYTES].data)
            file.release()
    return digest.hexdigest()
