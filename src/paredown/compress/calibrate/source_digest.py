"""A digest of what a checkpoint's files hold, to tell whether an unfinished run is of the same."""

import hashlib

from paredown.models.checkpoint import Checkpoint

_HASHED_BYTES = 64 << 20


def source_digest(source: Checkpoint) -> str:
    """The SHA-256 of the files, of which a stretch at a time is in memory."""
    digest = hashlib.sha256()
    for file in source.files:
        for start in range(0, file.file_bytes, _HASHED_BYTES):
            digest.update(file.raw[start : start + _HASHED_BYTES].data)
            file.release()
    return digest.hexdigest()
