"""Tells a request that the server rightly refuses from one that it should have served."""

import json
from collections.abc import Mapping
from typing import Any

import openai

from tools.conformance.openai_python.served_fields import NEEDED_FIELDS, SERVED_FIELDS

_BASE = "/v1"


def refusal(error: BaseException) -> str | None:
    """Returns why a request was rightly refused, or None where the test failed.

    Right is a 400 that names a field which the request holds and the route does not serve, a 400
    that names a field without which there is nothing to answer, and a 404 that names an object
    which nobody stored.
    """
    if isinstance(error, openai.BadRequestError):
        return _refused_field(error)
    if isinstance(error, openai.NotFoundError):
        return _unknown_object(error)
    return None


def _refused_field(error: openai.BadRequestError) -> str | None:
    request = error.response.request
    route = request.url.path.removeprefix(_BASE)
    fields = {*_fields(request.content), *request.url.params}
    name = error.param
    if name is None or name not in error.message:
        return None
    if name in fields and name not in SERVED_FIELDS.get(route, frozenset()):
        return f"400 that names {name}, which this route does not serve"
    needed = NEEDED_FIELDS.get(route, ())
    if name in needed and not any(one in fields for one in needed):
        return f"400 that names {name}, without which there is nothing to answer"
    return None


def _unknown_object(error: openai.NotFoundError) -> str | None:
    """The tests ask for ids that only a mock server has, in the path or as the response before."""
    request = error.response.request
    named = [part for part in request.url.path.split("/") if part and part in error.message]
    previous = _fields(request.content).get("previous_response_id")
    if isinstance(previous, str) and previous in error.message:
        named.append(previous)
    if error.param is None and error.code is None:
        # No route of that path: nothing was looked up.
        return None
    return f"404 that names {named[-1]}, which nobody stored" if named else None


def _fields(content: bytes) -> Mapping[str, Any]:
    if not content:
        return {}
    fields = json.loads(content)
    assert isinstance(fields, dict)
    return fields
