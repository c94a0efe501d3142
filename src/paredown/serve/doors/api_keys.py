"""ApiKeys: who may use the server. A key has a name, which stands for its owner everywhere."""

import hmac
import re
import secrets
from collections.abc import Mapping

from paredown.errors import ConfigError

# What fewer characters hold can be guessed over the network.
MIN_KEY_CHARS = 12
MAX_KEY_CHARS = 512
# Each is compared with what a client sends.
MAX_KEYS = 1024
_KEY = re.compile(r"[\x21-\x7e]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_REMEDY = "A line is KEY or NAME: KEY; `openssl rand -hex 24` makes a key."


class ApiKeys:
    """Keeps no key, only digests under a secret of this process, and compares all of them with
    what was sent: neither memory nor time tells a key."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names` are keyed by key; several keys may have one name."""
        self._secret = secrets.token_bytes(32)
        self._names = [(self._digest(key.encode()), name) for key, name in names.items()]

    def __len__(self) -> int:
        return len(self._names)

    def name_of(self, sent: bytes) -> str | None:
        """Returns the name of the key that a client sent, or None where it is none of these."""
        digest, found = self._digest(sent), None
        for known, name in self._names:
            if hmac.compare_digest(known, digest):
                found = name
        return found

    def _digest(self, key: bytes) -> bytes:
        return hmac.digest(self._secret, key, "sha256")


def read_keys(text: str, where: str) -> dict[str, str]:
    """Returns names by key. Blank lines and those that begin with # say nothing; a key without a
    name is called after its line. Raises ConfigError, which shows no key."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, key = (part.strip() for part in line.rpartition(":"))
        if not colon:
            name = f"line-{number}"
        place = f"{where}, line {number}"
        if not _NAME.fullmatch(name):
            raise ConfigError("the name of an API key is none", seen=place, remedy=_NAME_REMEDY)
        if not _KEY.fullmatch(key) or not MIN_KEY_CHARS <= len(key) <= MAX_KEY_CHARS:
            raise ConfigError(
                f"an API key has {MIN_KEY_CHARS} to {MAX_KEY_CHARS} visible ASCII characters",
                seen=f"{place}: {len(key)} characters",
                remedy=_REMEDY,
            )
        if found.setdefault(key, name) != name:
            raise ConfigError("two names for one API key", seen=place, remedy="Keep one of them.")
    if len(found) > MAX_KEYS:
        raise ConfigError(
            "too many API keys", seen=f"{where}: {len(found)}", remedy=f"Use at most {MAX_KEYS}."
        )
    if not found:
        raise ConfigError("there is no API key", seen=where, remedy=_REMEDY)
    return found


_NAME_REMEDY = "A name has up to 64 letters, digits, dots, dashes, underscores or @."
