"""Pages of other sites that may use the server (CORS). None may unless it is named."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from paredown.errors import ConfigError
from paredown.serve.watch.request_record import ID_HEADER
from paredown.shown import quoted

ANY = "*"
_MAX_SHOWN_CHARS = 100
# What a browser sends: a scheme, a host in lower case, a port unless it is the scheme's own.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_OWN_PORTS = {"http": ":80", "https": ":443"}
# How long a browser may remember that it asked.
_MAX_AGE_S = 600


@dataclass(frozen=True)
class CrossOrigins:
    """`origins` are in the form in which browsers send them; `*` among them is any."""

    origins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, named: Sequence[str]) -> "CrossOrigins":
        """Returns the origins that a user named. Raises ConfigError."""
        return cls(frozenset(map(_normal, named)))

    def allows(self, origin: str) -> bool:
        return ANY in self.origins or origin in self.origins

    def around(self, app: ASGIApp) -> ASGIApp:
        """Returns the application with answers that pages of these origins may read. They may send
        any header, keys among them, but no cookies, which nobody here looks at."""
        if not self.origins:
            return app
        return CORSMiddleware(
            app,
            allow_origins=sorted(self.origins),
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=(ANY,),
            expose_headers=(ID_HEADER, "Retry-After"),
            max_age=_MAX_AGE_S,
        )


NO_PAGES = CrossOrigins()


def _normal(named: str) -> str:
    origin = named.lower()
    if origin == ANY:
        return origin
    if (found := _ORIGIN.fullmatch(origin)) is None:
        raise ConfigError(
            "--cors-origin is not the origin of a page",
            seen=quoted(named, _MAX_SHOWN_CHARS),
            remedy="Give scheme, host and port as in https://app.example.org:8443, or * for any.",
        )
    own_port = _OWN_PORTS.get(origin.partition(":")[0], "")
    return origin.removesuffix(own_port) if found[2] == own_port else origin
