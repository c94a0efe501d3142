"""Asks for a key at the door: Authorization: Bearer KEY, as OpenAI's clients send it, or
x-api-key: KEY, as Anthropic's do."""

from collections.abc import Iterable, Set
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from paredown.serve.doors.key_ring import KeyRing
from paredown.serve.errors import HttpError
from paredown.serve.message_error import error_body
from paredown.serve.watch.request_record import RequestRecord

_BEARER = b"bearer "
# Heads with more are not looked through.
_MAX_SENT = 4
_IN_URLS = frozenset({"access_token", "api-key", "api_key", "apikey", "key", "token"})
_HOW = "send the header Authorization: Bearer KEY, or x-api-key: KEY"


class KeyCheck:
    """Passes requests with a valid key, and those to `open_paths`, to the application; others get
    a 401 before their body is read."""

    def __init__(self, app: ASGIApp, ring: KeyRing, open_paths: Set[str]) -> None:
        self._app = app
        self._ring = ring
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            sent = list(sent_keys(scope["headers"]))
            name = next(filter(None, map(self._ring.name_of, sent[:_MAX_SENT])), None)
            if name is None:
                refusal = _refusal(scope, has_sent=bool(sent))
                challenge = 'Bearer realm="paredown"' + ', error="invalid_token"' * bool(sent)
                body = error_body(refusal, scope)
                response = refusal.response({"WWW-Authenticate": challenge}, body=body)
                await response(scope, receive, send)
                return
            RequestRecord.of(scope).key_name = name
        await self._app(scope, receive, send)


def sent_keys(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[bytes]:
    """Yields the keys in the head of a request, whose names are in lower case."""
    for name, value in headers:
        if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            yield value[len(_BEARER) :].strip()
        elif name == b"x-api-key":
            yield value.strip()


def _refusal(scope: Scope, *, has_sent: bool) -> HttpError:
    if has_sent:
        return HttpError(
            401, f"this API key is not valid here; {_HOW} of this server", code="invalid_api_key"
        )
    query = scope["query_string"].decode("latin-1")
    try:
        named = {name.lower() for name, _ in parse_qsl(query, max_num_fields=64)}
    except ValueError:
        named = set()
    if named & _IN_URLS:
        return HttpError(
            401,
            f"no API key is taken from a URL, since URLs are logged on their way; {_HOW}, and "
            "replace the key that was sent",
            code="missing_api_key",
        )
    return HttpError(401, f"this server wants an API key; {_HOW}", code="missing_api_key")
