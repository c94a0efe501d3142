"""The cache of packed weights on disk: finds files, writes them in the background, limits their
size.

They lie only in the user's own cache folder (files/user_cache.py), never beside a checkpoint: the
author of a checkpoint could have packed other weights than its files have. A file's name is a hash
of its sources (models/fingerprints.py) and the checkpoint's path, so that no other folder can have
written it. It is written under a temporary name and then renamed, so it is complete or absent. A
process that has mapped it keeps the old content when another process replaces it.
"""

import contextlib
import errno
import hashlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from paredown.executors.cache_config import CacheConfig
from paredown.executors.native.partial_file import partial_file, remove_leftovers
from paredown.files.own_file import read_own_file
from paredown.files.own_folder import check_own_folder
from paredown.files.refused_file import RefusedFileError
from paredown.files.user_cache import check_named_cache, default_cache, make_cache
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
from paredown.units import MEBI

LOGGER = logging.getLogger(__name__)

# The time in which a process that exits may still finish writing.
_EXIT_GRACE_S = 10.0
_MAX_RECORD_BYTES = 16 * MEBI
# The name of a packed file. Other files in the folder are not ours to remove.
_OWN_NAME = re.compile(r"[0-9a-f]{32}\.packed")


class PackedCache:
    """The cache as one checkpoint sees it. `options` are the load options that change the packed
    bytes. Raises ConfigError for a folder in `config` that others can write to."""

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
        if config.folder is not None:
            check_named_cache(config.folder)
        self._folder = default_cache() if config.folder is None else config.folder
        place = str(checkpoint.path.resolve())
        self._place = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:16]
        self._record = self._folder / f"{self._place}.content"
        self._digest: str | None = None
        self._writer: threading.Thread | None = None

    def find(self) -> PackedFile | None:
        """Returns the checkpoint's packed file, whose verification has started; None if there is
        no usable one."""
        if not self._is_own():
            return None
        digest = self._known_digest()
        if digest is None:
            return None
        path = self._folder / self._file_name(digest)
        try:
            found = PackedFile(path, self._key(digest), self._num_threads)
        except FileNotFoundError:
            return None
        except PackedFileError as error:
            self.reject(path, error)
            return None
        except RefusedFileError as error:
            self.reject(path, PackedFileError(error.strerror))
            return None
        except OSError as error:
            LOGGER.warning("%s cannot be read: %s", path, error.strerror or error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)  # marks its last use for `drop_oldest`
        self._digest = digest
        return found

    @property
    def content(self) -> str | None:
        """The digest of the checkpoint's files, if it is known by now (models/fingerprints.py)."""
        return self._digest

    def reject(self, path: Path, reason: PackedFileError) -> None:
        """Reports that a file is damaged, and removes it."""
        LOGGER.warning("%s is not used: %s; the weights are packed anew", path, reason)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    def pass_over(self, path: Path, reason: Exception) -> None:
        """Reports that a file could not be verified now. It may be intact and stays."""
        LOGGER.warning("%s is not used: %s; the weights are packed anew", path, reason)

    def store(self, model: NativeModel) -> None:
        """Writes the model's packed weights in the background, once the model is complete."""
        if model.weight_bytes < self._config.min_bytes:
            return
        self._writer = threading.Thread(
            target=self._store, args=(model.packed(),), name="packed cache"
        )
        self._writer.start()

    def wait(self) -> None:
        """Waits until what `store` started has ended."""
        if self._writer is not None:
            self._writer.join()

    def _is_own(self) -> bool:
        try:
            check_own_folder(self._folder)
        except RefusedFileError as error:
            LOGGER.warning(
                "the cache folder %s is not used: %s. %s",
                self._folder,
                error.strerror,
                error.remedy,
            )
            return False
        except OSError:
            return False
        return True

    def _key(self, digest: str) -> str:
        options = {**self._options, "place": self._place}
        return packing_key(self._checkpoint, digest, _core.LAYOUT_VERSION, options)

    def _file_name(self, digest: str) -> str:
        return f"{self._key(digest)}.packed"

    def _known_digest(self) -> str | None:
        """Returns the digest recorded for this path. Returns None without a record, and where the
        files have changed since; they are then packed again."""
        try:
            text = read_own_file(self._record, _MAX_RECORD_BYTES)
            record = ContentRecord.decode(text.decode())
        except (OSError, ValueError):
            return None
        return record.digest if record.states == mapped_states(self._checkpoint) else None

    def _write_record(self, digest: str) -> None:
        if not is_unchanged(self._checkpoint):
            return
        record = ContentRecord(states=mapped_states(self._checkpoint), digest=digest)
        with partial_file(self._folder) as (partial, file):
            file.write(record.encode().encode())
            partial.replace(self._record)

    def _store(self, blobs: list[Blob]) -> None:
        # Hashing uses one thread, here and below: the others belong to the model, which may be
        # running.
        if self._digest is None:
            self._digest = content_digest(self._checkpoint, num_threads=1)
        try:
            self._write(self._digest, blobs)
        except AbandonedError:
            LOGGER.info("the packed weights of %s were not kept", self._checkpoint.path)
        except OSError as error:
            LOGGER.warning(
                "the packed weights of %s could not be kept, so the next start packs them again "
                "(%s: %s)",
                self._checkpoint.path,
                self._folder,
                error.strerror or error,
            )

    def _write(self, digest: str, blobs: list[Blob]) -> None:
        is_new = make_cache(self._folder, is_named=self._config.folder is not None)
        remove_leftovers(self._folder)
        path = self._folder / self._file_name(digest)
        try:
            _check_space(self._folder, sum(blob.data.nbytes for blob in blobs))
            with partial_file(self._folder) as (partial, file):
                key, go_on = self._key(digest), _ExitClock().go_on
                write_packed_file(file, key, blobs, num_threads=1, go_on=go_on)
                if not is_unchanged(self._checkpoint):
                    raise AbandonedError(path.name)
                partial.replace(path)
            self._write_record(digest)
            sync_folder(self._folder)
        except BaseException:
            if is_new:
                with contextlib.suppress(OSError):
                    self._folder.rmdir()  # only if it is empty
            raise
        drop_oldest(self._folder, keep=path, max_bytes=self._config.max_folder_bytes)
        LOGGER.info("the packed weights are kept in %s", path)


class _ExitClock:
    """Lets a process that exits finish its writing for a few seconds, but not for minutes."""

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
    """Removes the least recently used packed files until `folder` holds at most `max_bytes` of
    them; `keep` always stays."""
    others = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if not _OWN_NAME.fullmatch(path.name):
                continue
            with contextlib.suppress(FileNotFoundError):  # another process may drop files too
                stat = path.lstat()
                others.append((path != keep, -stat.st_mtime_ns, stat.st_size, path))
    total = 0
    for may_go, _, num_bytes, path in sorted(others):
        total += num_bytes
        if may_go and total > max_bytes:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _check_space(folder: Path, num_bytes: int) -> None:
    """Raises an error if the cache would take more than half of the free disk space: a cache must
    not fill a disk."""
    if shutil.disk_usage(folder).free < 2 * num_bytes:
        raise OSError(errno.ENOSPC, "less than twice the space it takes is free")
