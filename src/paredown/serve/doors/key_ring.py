"""KeyRing: the keys that are valid now, which may change while the server runs."""

import logging
import stat
from pathlib import Path

from paredown.errors import ConfigError
from paredown.files.named_file import read_named_file
from paredown.serve.doors.api_keys import ApiKeys, read_keys
from paredown.serve.doors.watched_files import WatchedFiles

LOGGER = logging.getLogger(__name__)
VARIABLE = "PAREDOWN_API_KEY"
_MAX_FILE_BYTES = 1_000_000


class KeyRing:
    """Keys of a file, of the environment, or of both. Raises ConfigError where they cannot be
    read at the start; later the old ones are kept, and the log says why."""

    def __init__(self, path: Path | None = None, from_environment: str | None = None) -> None:
        self._path = path
        self._fixed: dict[str, str] = {}
        if from_environment is not None:
            self._fixed = read_keys(from_environment, f"environment variable {VARIABLE}")
        self._files = WatchedFiles(() if path is None else (path,))
        self.keys = self._read()

    @property
    def is_readable_by_others(self) -> bool:
        """Whether other users of the machine may read the file."""
        return self._path is not None and bool(
            self._path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
        )

    def name_of(self, sent: bytes) -> str | None:
        """Returns the name of a valid key, or None."""
        return self.keys.name_of(sent)

    def refresh(self, *, at_once: bool = False) -> None:
        """Reads the file again where it has changed, or `at_once`. A key that is no longer in it
        is refused from then on."""
        if self._path is None or not (self._files.have_changed() or at_once):
            return
        try:
            self.keys = self._read()
        except ConfigError as error:
            LOGGER.error("the API keys stay as they were: %s", error)
        else:
            LOGGER.warning("API keys were read again: there are %d now", len(self.keys))

    def _read(self) -> ApiKeys:
        if self._path is None:
            return ApiKeys(self._fixed)
        try:
            text = read_named_file(self._path, _MAX_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the API keys in {self._path} cannot be read",
                seen=error.strerror if isinstance(error, OSError) else "it is no text in UTF-8",
                remedy="Name a file with one key a line.",
            ) from error
        return ApiKeys(self._fixed | read_keys(text, str(self._path)))
