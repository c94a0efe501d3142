"""The OpenAPI 3.1 document of the server, made from its table of endpoints and their schemas."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import paredown
from paredown.serve.endpoint import Endpoint
from paredown.serve.errors import CLIENT_CLOSED_REQUEST
from paredown.serve.openapi.body_schema import complete
from paredown.serve.schema.answers.server import ErrorAnswer

_REF = "#/components/schemas/{model}"
_JSON = "application/json"
# What any route may answer: a wrong name, a bug, a model that is not there, no place.
_ANY = (403, 500, 503)
# What reading a body may come to, and the work that it asks for.
_WITH_BODY = (400, 404, 408, 413, 415, 429, CLIENT_CLOSED_REQUEST)
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def openapi_document(endpoints: Iterable[Endpoint], *, has_keys: bool) -> dict[str, Any]:
    """Returns the document, as JSON has it. With `has_keys` every route that is not open needs
    one."""
    listed = list(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for one in listed:
        paths.setdefault(one.told_path, {})[one.method.lower()] = _operation(one, has_keys)
    components: dict[str, Any] = {"schemas": _schemas(listed)}
    if has_keys:
        components["securitySchemes"] = _SECURITY
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Paredown",
            "version": paredown.__version__,
            "description": "Answers as the OpenAI API does; docs/guide/http.md has the details.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": components,
    }


def _schemas(endpoints: list[Endpoint]) -> dict[str, Any]:
    kinds: list[type[BaseModel]] = [ErrorAnswer]
    kinds += [kind for one in endpoints for kind in _models(one)]
    _, found = models_json_schema(
        [(kind, "validation") for kind in dict.fromkeys(kinds)], ref_template=_REF, title=None
    )
    return complete(found["$defs"])


def _models(endpoint: Endpoint) -> Iterator[type[BaseModel]]:
    for kind in (endpoint.body, endpoint.answer, endpoint.piece, endpoint.error):
        if kind is not None and not isinstance(kind, str):
            yield kind


def _operation(endpoint: Endpoint, has_keys: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "responses": _responses(endpoint, needs_key=has_keys and not endpoint.is_open),
    }
    if parameters := _parameters(endpoint):
        found["parameters"] = parameters
    if endpoint.body is not None:
        found["requestBody"] = {"required": True, "content": {_JSON: _schema(endpoint.body)}}
    if has_keys:
        found["security"] = [] if endpoint.is_open else [{name: []} for name in _SECURITY]
    return found


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in endpoint.told_path.split("/") if part.startswith("{")]
    text = {"type": "string"}
    return [
        *({"name": name, "in": "path", "required": True, "schema": text} for name in names),
        *(
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in endpoint.query.items()
        ),
    ]


def _name(endpoint: Endpoint) -> str:
    words = endpoint.told_path.replace("{", "").replace("}", "").replace(".", "_")
    return "_".join([endpoint.method.lower(), *(part for part in words.split("/") if part)])


def _responses(endpoint: Endpoint, *, needs_key: bool) -> dict[str, Any]:
    content: dict[str, Any]
    if isinstance(endpoint.answer, str):
        content = {endpoint.answer: {"schema": {"type": "string"}}}
    else:
        content = {_JSON: _schema(endpoint.answer)}
    found: dict[str, Any] = {"200": {"description": "the answer", "content": content}}
    if endpoint.piece is not None:
        content["text/event-stream"] = {"schema": _event(endpoint.piece)}
    statuses = {*_ANY, *(_WITH_BODY if endpoint.body is not None else ())}
    if "{" in endpoint.path:
        statuses |= {400, 404}
    if needs_key:
        statuses.add(401)
    for status in sorted(statuses):
        # The doors and the intake have one form for all routes.
        kinds: list[type[BaseModel]] = [ErrorAnswer, endpoint.error]
        found[str(status)] = _error(status, list(dict.fromkeys(kinds)))
    return found


def _event(kind: type[BaseModel]) -> dict[str, Any]:
    """Returns the schema of one server-sent event: its data is the JSON of `kind`, or a word that
    ends the stream."""
    data = {
        "type": "string",
        "contentMediaType": _JSON,
        "contentSchema": _schema(kind)["schema"],
    }
    return {
        "type": "object",
        "description": f"server-sent events; the data of each is the JSON of {kind.__name__}",
        "properties": {"event": {"type": "string"}, "data": data},
        "required": ["data"],
    }


def _error(status: int, kinds: list[type[BaseModel]]) -> dict[str, Any]:
    if status == CLIENT_CLOSED_REQUEST:
        phrase = "the client closed the connection"
    else:
        phrase = HTTPStatus(status).phrase
    refs = [_schema(kind)["schema"] for kind in kinds]
    schema = {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}
    found: dict[str, Any] = {"description": phrase, "content": {_JSON: schema}}
    if status in (429, 503):
        seconds = {"type": "string", "pattern": "^[0-9]+$"}
        found["headers"] = {"Retry-After": {"schema": seconds, "description": "seconds"}}
    return found


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(model=kind.__name__)}}
