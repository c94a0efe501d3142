"""Endpoint: one route, as the application serves it and as /openapi.json tells it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paredown.serve.schema.answers.server import ErrorAnswer


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """`body` is the schema of the JSON that it reads, `answer` of that which it answers, or the
    media type of another answer. Where a body may ask for a stream, `piece` is the schema of an
    event's data; `error` is that of an answer which is not 200. `query` has the
    schemas of parameters in the URL. An open route needs no key."""

    path: str
    method: Literal["GET", "POST", "DELETE"]
    run: Callable[[Request], Awaitable[Response]]
    summary: str
    answer: type[BaseModel] | str
    body: type[BaseModel] | None = None
    piece: type[BaseModel] | None = None
    error: type[BaseModel] = ErrorAnswer
    query: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    is_open: bool = False

    @property
    def told_path(self) -> str:
        """The path without what Starlette's converters say."""
        return self.path.replace(":path}", "}")


def routes_of(endpoints: Iterable[Endpoint]) -> list[Route]:
    """Returns a route for each path, so that a wrong method is told all that are right."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for one in endpoints:
        by_path.setdefault(one.path, {})[one.method] = one
    return [Route(path, _by_method(found), methods=[*found]) for path, found in by_path.items()]


def _by_method(found: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    if len(found) == 1:
        return next(iter(found.values())).run

    async def run(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await found[method].run(request)

    return run
