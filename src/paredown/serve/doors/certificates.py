"""Certificates: the server's TLS certificate, which may be renewed while the server runs."""

import logging
import ssl
import stat
from pathlib import Path

from paredown.errors import ConfigError
from paredown.files.named_file import read_named_file
from paredown.serve.doors.watched_files import WatchedFiles

LOGGER = logging.getLogger(__name__)
_MAX_FILE_BYTES = 1_000_000


class Certificates:
    """The context of new connections. Raises ConfigError where the files cannot be used at the
    start; later the old context is kept, and the log says why."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._files = WatchedFiles((certificate, key))
        self.context = self._load()

    @property
    def is_readable_by_others(self) -> bool:
        """Whether other users of the machine may read the private key."""
        return bool(self._key.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))

    def refresh(self, *, at_once: bool = False) -> None:
        """Reads the files again where they have changed, or `at_once`. Connections that are there
        stay as they are."""
        if not (self._files.have_changed() or at_once):
            return
        try:
            self.context = self._load()
        except ConfigError as error:
            LOGGER.error("the TLS certificate stays as it was: %s", error)
        else:
            LOGGER.warning("the TLS certificate was read again")

    def _load(self) -> ssl.SSLContext:
        """Makes a new context: a failure in the middle leaves the one in use whole."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            for path in (self._certificate, self._key):
                # OpenSSL would wait for a pipe.
                read_named_file(path, _MAX_FILE_BYTES)
            # Without a password, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the TLS files {self._certificate} and {self._key} cannot be used",
                seen=error.strerror if isinstance(error, OSError) and error.strerror else error,
                remedy="Give --tls-cert a certificate chain in PEM and --tls-key its private key, "
                "without a password.",
            ) from error
        return context
