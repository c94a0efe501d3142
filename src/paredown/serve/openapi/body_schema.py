"""JSON Schema of a request's body: its fields, their limits, and fields of other servers whose
value asks for nothing."""

from collections.abc import Iterator, Mapping

from paredown.engine.sampling.sampling_params import RULES
from paredown.engine.schedule.service import MAX_DEADLINE_S, MAX_PRIORITY
from paredown.serve.openapi.rule_schema import Schema, limited, rule_schema
from paredown.serve.schema import encoder, strict
from paredown.serve.schema.completion import MAX_PROMPTS, CompletionRequest
from paredown.serve.schema.encoder import MAX_TEXTS, EncoderRequest
from paredown.serve.schema.generation import Generation
from paredown.serve.schema.message import Message
from paredown.serve.schema.messages import PromptOfMessage
from paredown.serve.schema.response import PromptOfResponse
from paredown.serve.schema.strict import Strict

NoOps = Mapping[str, tuple[object, ...]]
# The tables of fields that a class, or one that it is derived from, lets pass. Other classes have
# theirs as `no_ops`.
NO_OPS_OF: Mapping[type[Strict], NoOps] = {
    EncoderRequest: encoder.NO_OPS,
    Message: strict.MESSAGE_NO_OPS,
}
# Limits of fields: of settings, also under another name, and of Service.
_FIELD_LIMITS: Mapping[str, Schema] = {
    **{name: rule_schema(rule) for name, rule in RULES.items()},
    "max_completion_tokens": rule_schema(RULES["max_tokens"]),
    "top_logprobs": rule_schema(RULES["logprobs"]),
    "priority": {"minimum": -MAX_PRIORITY, "maximum": MAX_PRIORITY},
    "deadline_s": {"exclusiveMinimum": 0, "maximum": MAX_DEADLINE_S},
}
# Lists that are counted before they are looked at: no entry is no question.
_LISTS: Mapping[str, int] = {
    "prompt": MAX_PROMPTS,
    "input": MAX_TEXTS,
    "documents": MAX_TEXTS,
    "text_1": MAX_TEXTS,
    "text_2": MAX_TEXTS,
}


def complete(schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """Returns the schemas by name; those of bodies with what pydantic does not know of them."""
    kinds = {kind.__name__: kind for kind in _derived(Strict)}
    return {
        name: _of_body(schema, kinds[name]) if name in kinds else schema
        for name, schema in schemas.items()
    }


def _of_body(schema: Schema, kind: type[Strict]) -> Schema:
    properties = schema["properties"]
    assert isinstance(properties, dict)
    told = {name: _told(name, field, kind) for name, field in properties.items()}
    tables = [no_ops for base, no_ops in NO_OPS_OF.items() if issubclass(kind, base)]
    for no_ops in [*tables, getattr(kind, "no_ops", {})]:
        for name, values in no_ops.items():
            nothing: Schema = {"enum": list(values), "description": "has no effect"}
            told[name] = {"anyOf": [told[name], nothing]} if name in told else nothing
    return {**schema, "properties": told}


def _told(name: str, field: Mapping[str, object], kind: type[Strict]) -> Schema:
    if name in _LISTS and issubclass(kind, EncoderRequest | CompletionRequest):
        return _counted(field, _LISTS[name])
    if issubclass(kind, Generation | PromptOfResponse | PromptOfMessage) and name in _FIELD_LIMITS:
        return limited(field, _FIELD_LIMITS[name])
    return dict(field)


def _counted(field: Mapping[str, object], most: int) -> Schema:
    """Returns the schema of texts with limits of their number. A list of token ids is one text."""
    branches = field.get("anyOf")
    if isinstance(branches, list):
        return {**field, "anyOf": [_counted(one, most) for one in branches]}
    if field.get("type") != "array":
        return dict(field)
    items = field["items"]
    assert isinstance(items, dict)
    if items.get("type") == "integer":
        return {**field, "minItems": 1, "items": {**items, "minimum": 0}}
    return {**field, "minItems": 1, "maxItems": most, "items": _counted(items, most)}


def _derived(kind: type[Strict]) -> Iterator[type[Strict]]:
    for one in kind.__subclasses__():
        yield one
        yield from _derived(one)
