"""The host names by which a server may be called, which keep foreign web pages from using it.

A page of evil.example may resolve its name to 127.0.0.1 and then treat this server as its own (DNS
rebinding); the browser still sends the name in Host. Any page may also POST to 127.0.0.1; the
browser then names the page's origin in Origin."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from paredown.errors import ConfigError
from paredown.serve.doors.cross_origin import NO_PAGES, CrossOrigins
from paredown.serve.errors import HttpError
from paredown.shown import quoted

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_MAX_SHOWN_CHARS = 100
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]*)?", re.IGNORECASE)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([^/?#@]*)", re.IGNORECASE)
_ABSOLUTE = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)


@dataclass(frozen=True)
class AllowedHosts:
    """`names` are lower case, without a port, brackets or a final dot; None allows any."""

    names: frozenset[str] | None

    @classmethod
    def of(cls, bound: str, named: Sequence[str] = ()) -> "AllowedHosts":
        """Returns the allowed hosts for the listening address `bound`. On loopback these are
        loopback's names and those in `named`; elsewhere any name, or loopback's and `named` if some
        are given. Raises ConfigError for an invalid name."""
        wanted = [_given_name(one) for one in named]
        for one, name in zip(named, wanted, strict=True):
            if name is None:
                raise ConfigError(
                    "--allowed-host is not the name of a host",
                    seen=quoted(one, _MAX_SHOWN_CHARS),
                    remedy="Give the name or address alone, without http:// and without a port.",
                )
        if not named and not is_loopback(bound):
            return cls(None)
        here = host_name(f"[{bound}]" if ":" in bound else bound)
        return cls(LOOPBACK_NAMES.union(name for name in (here, *wanted) if name))

    def allows(self, authority: str) -> bool:
        """Returns whether Host, or the host of a URL, names this server; the port is ignored."""
        return self.names is None or host_name(authority) in self.names


class HostCheck:
    """Passes requests that name this server to the application; others get a 403 with the remedy.
    An absolute-form target counts as a name too and is converted to the usual form."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, pages: CrossOrigins = NO_PAGES) -> None:
        self._app = app
        self._hosts = hosts
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            named = [_text(value) for name, value in scope["headers"] if name == b"host"]
            if (target := _ABSOLUTE.match(scope["path"])) is not None:
                named.append(target[1])
                path = scope["path"][target.end() :] or "/"
                scope = {**scope, "path": path, "raw_path": path.encode()}
            origins = [_text(value) for name, value in scope["headers"] if name == b"origin"]
            error = self._refusal(named, origins)
            if error is not None:
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, named: list[str], origins: list[str]) -> HttpError | None:
        if self._hosts.names is None:
            return None
        strange = next((one for one in named if not self._hosts.allows(one)), None)
        if strange is not None or not named:
            seen = "no Host" if strange is None else f"Host {quoted(strange, _MAX_SHOWN_CHARS)}"
            return HttpError(
                403,
                f"this server is not called so: the request has {seen}. Call it localhost or "
                "127.0.0.1, or start it with --allowed-host NAME.",
                code="host_not_allowed",
            )
        for origin in origins:
            if self._pages.allows(origin):
                continue
            found = _ORIGIN.fullmatch(origin)
            if found is None or not self._hosts.allows(found[1]):
                return HttpError(
                    403,
                    "a page of another site may not use this server: the request has Origin "
                    f"{quoted(origin, _MAX_SHOWN_CHARS)}. Where that page is yours, start the "
                    "server with --cors-origin and that origin.",
                    code="origin_not_allowed",
                )
        return None


def host_name(authority: str) -> str | None:
    """Returns the host in "name", "name:port" or "[address]:port", in lower case and without a
    final dot; None where there is none."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    if not found[1].startswith("["):
        return found[1].lower().removesuffix(".") or None
    try:
        return str(ipaddress.IPv6Address(found[1][1:-1]))
    except ValueError:
        return None


def _given_name(text: str) -> str | None:
    """Parses a name without a port, or an address with or without brackets."""
    if text.count(":") == 1 or "]:" in text:
        return None
    is_bare_address = ":" in text and not text.startswith("[")
    return host_name(f"[{text}]" if is_bare_address else text)


def is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return found.is_loopback or (mapped is not None and mapped.is_loopback)


def _text(header: bytes) -> str:
    return header.decode("latin-1").strip()
