"""Downloads one file of a repository into the hub's cache, where a file is complete and as
announced.

Bytes are collected in `blobs/DIGEST.paredown-part`, which a later try resumes. The file gets its
name once its digest is verified.
"""

import errno
import fcntl
import hashlib
import os
import stat
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from huggingface_hub import constants, get_token
from huggingface_hub.file_download import http_get

from paredown.errors import HubError
from paredown.files.new_file import SHARED
from paredown.models.hub.failures import telling
from paredown.models.hub.hub_name import HubName
from paredown.models.hub.hub_source import SNAPSHOTS
from paredown.models.hub.listing import RemoteFile
from paredown.shell_word import shell_path
from paredown.shown import shown

PART_SUFFIX = ".paredown-part"
_CHUNK_BYTES = 1 << 20
_GIT_DIGITS = 40


def is_cached(folder: Path, commit: str, file: RemoteFile) -> bool:
    """Returns whether the repository's cache folder has the file, by its size."""
    try:
        return _pointer(folder, commit, file).stat().st_size == file.num_bytes
    except OSError:
        return False


def part_path(folder: Path, file: RemoteFile) -> Path:
    """Returns the path of the bytes received so far."""
    return folder / "blobs" / f"{file.digest}{PART_SUFFIX}"


def download(name: HubName, folder: Path, commit: str, file: RemoteFile) -> None:
    """Downloads the file into the repository's cache folder. Raises HubError; a later call
    resumes."""
    with telling(name, file.name):
        blob = folder / "blobs" / file.digest
        blob.parent.mkdir(parents=True, exist_ok=True)
        if not blob.exists() or blob.stat().st_size != file.num_bytes:
            _fetch(name, folder, commit, file)
        pointer = _pointer(folder, commit, file)
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))


def _fetch(name: HubName, folder: Path, commit: str, file: RemoteFile) -> None:
    path = urllib.parse.quote(file.name)
    url = f"{constants.ENDPOINT}/{name.repository}/resolve/{commit}/{path}"
    token = get_token()
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    part_file, blob = part_path(folder, file), folder / "blobs" / file.digest
    with _open_part(part_file) as part:
        # Wait for another process that may be fetching the same file.
        fcntl.flock(part, fcntl.LOCK_EX)
        if blob.exists() and blob.stat().st_size == file.num_bytes:
            part_file.unlink(missing_ok=True)
            return
        resumed = _receive(url, part, headers, file)
        if resumed and _digest(part, file) != file.digest:
            part.truncate(0)
            _receive(url, part, headers, file)
        found = _digest(part, file)
        if found != file.digest:
            part_file.unlink(missing_ok=True)
            raise HubError(
                f"{name.repository}: {file.name}: the hub sent other bytes than it announced",
                seen=f"digest {found}, announced {file.digest}",
                remedy="Try again; nothing of it is used. A proxy on the way may change files.",
            )
        part.flush()
        os.fsync(part.fileno())
        part_file.replace(blob)


def _open_part(path: Path) -> BinaryIO:
    """Opens a new file, or what an earlier try of this user left. It follows no links and takes no
    file with a second name. Raises HubError for anything else, and OSError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, SHARED)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _strange(path, "a link") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_uid != os.geteuid():
        os.close(descriptor)
        raise _strange(path, f"user {found.st_uid}, mode {found.st_mode:o}, {found.st_nlink} names")
    return os.fdopen(descriptor, "ab+", buffering=_CHUNK_BYTES)


def _strange(path: Path, seen: str) -> HubError:
    return HubError(
        f"{path} is not what an earlier download of yours can have left",
        seen=seen,
        remedy=f"Remove it (`rm {shell_path(path)}`), then try again.",
    )


def _receive(url: str, part: BinaryIO, headers: Mapping[str, str], file: RemoteFile) -> bool:
    """Completes the part and returns whether it resumed an earlier try. `http_get` resumes after a
    broken connection and checks the number of bytes."""
    start = part.seek(0, os.SEEK_END)
    if start > file.num_bytes:
        start = part.truncate(0)
        part.seek(0)
    http_get(
        url,
        part,
        resume_size=start,
        headers=dict(headers),
        expected_size=file.num_bytes,
        displayed_filename=shown(file.name, 80),
    )
    return start > 0


def _digest(part: BinaryIO, file: RemoteFile) -> str:
    part.seek(0)
    if len(file.digest) == _GIT_DIGITS:
        digest = hashlib.sha1(b"blob %d\0" % file.num_bytes, usedforsecurity=False)
    else:
        digest = hashlib.sha256()
    while chunk := part.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _pointer(folder: Path, commit: str, file: RemoteFile) -> Path:
    return folder / SNAPSHOTS / commit / file.name
