"""The packed weights of a checkpoint on disk: found, written beside the caller, kept within bounds.

A file lies in `.paredown/` next to the checkpoint, else in the user's cache folder. It is named by
what it was made of (models/fingerprints.py), written once under another name and renamed, so that
it is whole or not there and a process that maps it keeps what it has when another puts a new one
there.
"""

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paredown.executors.cache_config import CacheConfig
from paredown.executors.native.partial_file import partial_file, remove_leftovers
from paredown.kernels import _core
from paredown.kernels.native_model import NativeModel
from paredown.kernels.packed_file import (
    AbandonedError,
    Blob,
    PackedFile,
    PackedFileError,
    write_packed_file,
)
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.whole_file import sync_folder
from paredown.models.fingerprints import (
    ContentRecord,
    content_digest,
    is_unchanged,
    mapped_states,
    packing_key,
)
from paredown.models.hub.hub_source import HubSource
from paredown.user_cache import user_cache_folder

LOGGER = logging.getLogger(__name__)

FOLDER_NAME = ".paredown"
# How long a process that is at its end still writes.
_EXIT_GRACE_S = 10.0


@dataclass(frozen=True)
class _Place:
    folder: Path
    record_name: str
    max_bytes: int
    is_beside: bool


class PackedCache:
    """The cache as one checkpoint sees it. `options` are those of loading that change the packed
    bytes."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: CacheConfig,
        *,
        num_threads: int,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._config = config
        self._num_threads = num_threads
        self._options = options or {}
        self._digest: str | None = None
        self._writer: threading.Thread | None = None

    def find(self) -> PackedFile | None:
        """The checkpoint's packed file, its verification under way; None where there is none that
        could be used."""
        for place in self._places():
            digest = self._known_digest(place)
            if digest is None:
                continue
            path = place.folder / self._file_name(digest)
            try:
                found = PackedFile(path, self._key(digest), self._num_threads)
            except FileNotFoundError:
                continue
            except PackedFileError as error:
                self.reject(path, error)
                continue
            except OSError as error:
                LOGGER.warning("%s cannot be read: %s", path, error.strerror or error)
                continue
            with contextlib.suppress(OSError):
                os.utime(path)  # the time of its last use, for dropping the oldest
            self._digest = digest
            return found
        return None

    @property
    def content(self) -> str | None:
        """The digest of the checkpoint's files where it is known by now
        (models/fingerprints.py)."""
        return self._digest

    def reject(self, path: Path, reason: PackedFileError) -> None:
        """Says that a file is damaged, and takes it away."""
        LOGGER.warning("%s is not used: %s; the weights are packed anew", path, reason)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    def pass_over(self, path: Path, reason: Exception) -> None:
        """Says that a file could not be verified now; it may be sound and stays."""
        LOGGER.warning("%s is not used: %s; the weights are packed anew", path, reason)

    def store(self, model: NativeModel) -> None:
        """Writes the model's packed weights beside the caller, once the model is complete."""
        if model.weight_bytes < self._config.min_bytes:
            return
        self._writer = threading.Thread(
            target=self._store, args=(model.packed(),), name="packed cache"
        )
        self._writer.start()

    def wait(self) -> None:
        """Until what `store` began has ended, one way or the other."""
        if self._writer is not None:
            self._writer.join()

    def _places(self) -> list[_Place]:
        config = self._config
        # The user's folder serves many checkpoints, so a record there is named by the path.
        path = str(self._checkpoint.path.resolve())
        record_name = f"{hashlib.sha256(path.encode()).hexdigest()[:16]}.content"
        if config.folder is not None:
            return [_Place(config.folder, record_name, config.max_folder_bytes, is_beside=False)]
        folder = user_cache_folder()
        users = (
            []
            if folder is None
            else [_Place(folder, record_name, config.max_folder_bytes, is_beside=False)]
        )
        # A file may share its folder with other models, and the hub's cache is kept by its client.
        if self._checkpoint.path.is_file() or HubSource.of(self._checkpoint.path) is not None:
            return users
        # Next to the checkpoint there is room for its one newest file.
        return [_Place(self._checkpoint.path / FOLDER_NAME, "content", 0, is_beside=True), *users]

    def _key(self, digest: str) -> str:
        return packing_key(self._checkpoint, digest, _core.LAYOUT_VERSION, self._options)

    def _file_name(self, digest: str) -> str:
        return f"{self._key(digest)}.packed"

    def _known_digest(self, place: _Place) -> str | None:
        """From the place's record, at the price of reading the files where their states differ from
        the recorded ones but their content may not (a copied folder); None without a record."""
        try:
            record = ContentRecord.decode((place.folder / place.record_name).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        states = mapped_states(self._checkpoint)
        if record.states == states:
            return record.digest
        if (
            not record.may_match(states)
            or not (place.folder / self._file_name(record.digest)).exists()
        ):
            return None
        if self._digest is None:
            self._digest = content_digest(self._checkpoint, self._num_threads)
        if self._digest != record.digest:
            return None
        with contextlib.suppress(OSError):
            self._write_record(place, self._digest)
        return self._digest

    def _write_record(self, place: _Place, digest: str) -> None:
        if not is_unchanged(self._checkpoint):
            return
        record = ContentRecord(states=mapped_states(self._checkpoint), digest=digest)
        with partial_file(place.folder) as (partial, _):
            partial.write_text(record.encode(), "utf-8")
            partial.replace(place.folder / place.record_name)

    def _store(self, blobs: list[Blob]) -> None:
        # On one thread, here and below: the others are the model's, which may be at work.
        if self._digest is None:
            self._digest = content_digest(self._checkpoint, num_threads=1)
        refusals = []
        for place in self._places():
            try:
                self._write(place, self._digest, blobs)
                return
            except AbandonedError:
                LOGGER.info("the packed weights of %s were not kept", self._checkpoint.path)
                return
            except OSError as error:
                refusals.append(f"{place.folder}: {error.strerror or error}")
        LOGGER.warning(
            "the packed weights of %s could not be kept, so the next start packs them again (%s)",
            self._checkpoint.path,
            "; ".join(refusals) or "this user has no home; PAREDOWN_CACHE names a folder",
        )

    def _write(self, place: _Place, digest: str, blobs: list[Blob]) -> None:
        _make_folder(place)
        remove_leftovers(place.folder)
        path = place.folder / self._file_name(digest)
        try:
            _check_space(place.folder, sum(blob.data.nbytes for blob in blobs))
            with partial_file(place.folder) as (partial, file):
                key, go_on = self._key(digest), _ExitClock().go_on
                write_packed_file(file, key, blobs, num_threads=1, go_on=go_on)
                if not is_unchanged(self._checkpoint):
                    raise AbandonedError(path.name)
                partial.replace(path)
            self._write_record(place, digest)
            sync_folder(place.folder)
        except BaseException:
            with contextlib.suppress(OSError):
                place.folder.rmdir()  # where it is empty
            raise
        drop_oldest(place.folder, keep=path, max_bytes=place.max_bytes)
        LOGGER.info("the packed weights are kept in %s", path)


class _ExitClock:
    """Lets a process that has ended finish its writing for a while, but not for minutes."""

    def __init__(self) -> None:
        self._ended_s: float | None = None

    def go_on(self) -> bool:
        if threading.main_thread().is_alive():
            return True
        now_s = time.monotonic()
        if self._ended_s is None:
            self._ended_s = now_s
        return now_s - self._ended_s < _EXIT_GRACE_S


def drop_oldest(folder: Path, *, keep: Path, max_bytes: int) -> None:
    """Removes the packed files that were not used for longest until `folder` holds at most
    `max_bytes` of them; `keep` stays in any case."""
    others = []
    with contextlib.suppress(OSError):
        for path in folder.glob("*.packed"):
            with contextlib.suppress(FileNotFoundError):  # another process drops too
                stat = path.stat()
                others.append((path != keep, -stat.st_mtime_ns, stat.st_size, path))
    total = 0
    for may_go, _, num_bytes, path in sorted(others):
        total += num_bytes
        if may_go and total > max_bytes:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _make_folder(place: _Place) -> None:
    if place.is_beside:
        place.folder.mkdir(exist_ok=True)
    else:
        place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_space(folder: Path, num_bytes: int) -> None:
    """A cache must not be what fills a disk: it takes no more than half of what is free."""
    if shutil.disk_usage(folder).free < 2 * num_bytes:
        raise OSError(errno.ENOSPC, "less than twice the space it takes is free")
