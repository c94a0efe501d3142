"""The check of an address that a user gives."""

import re

import httpx2

from paredown.errors import ConfigError

_HOST = re.compile(r"[\w.:-]+")


def checked_address(address: str, *, what: str, remedy: str, without_password: str) -> httpx2.URL:
    """Returns the http or https address. Raises ConfigError for any other: `what` is wrong then,
    and `remedy` mends it. Raises it for one with a name or a password too, which `without_password`
    mends. Neither is shown."""
    _, at, rest = address.rpartition("@")
    seen = f"...@{rest}" if at else address
    try:
        found = httpx2.URL(address)
    except httpx2.InvalidURL as error:
        raise ConfigError(what, seen=seen, remedy=remedy) from error
    is_http = found.scheme in ("http", "https") and _HOST.fullmatch(found.host)
    if not is_http or found.fragment:
        raise ConfigError(what, seen=seen, remedy=remedy)
    if found.userinfo:
        raise ConfigError(
            "a name or a password in the address would be shown in logs",
            seen=seen,
            remedy=without_password,
        )
    return found
