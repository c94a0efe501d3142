"""Finds whether JSON schemas exclude each other: options of oneOf that do are those of anyOf."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from paredown.engine.grammar.schema_drafts import Schema, list_of, map_of, modern

_ALL = frozenset({"null", "boolean", "number", "string", "array", "object"})
_MAX_DEPTH = 4
Resolve = Callable[[Mapping[str, object]], object]


def exclude_each_other(options: Sequence[object], draft: int, resolve: Resolve) -> bool:
    """Returns whether no value is allowed by two of the options, as far as their types, their
    values and their required properties say. `resolve` follows a schema's $ref."""
    return all(_differ(one, other, draft, resolve, 0) for one, other in combinations(options, 2))


def _differ(one: object, other: object, draft: int, resolve: Resolve, depth: int) -> bool:
    if one is False or other is False:
        return True
    left, right = (_followed(schema, draft, resolve) for schema in (one, other))
    if left is None or right is None or depth > _MAX_DEPTH:
        return False
    if not _types(left) & _types(right):
        return True
    values, others = _values(left), _values(right)
    if values is not None and others is not None:
        return not any(_is_same(x, y) for x in values for y in others)
    if _types(left) & _types(right) != {"object"}:
        return False
    required = {str(name) for schema in (left, right) for name in list_of(schema, "required")}
    properties, more = map_of(left, "properties"), map_of(right, "properties")
    return any(
        _differ(properties[name], more[name], draft, resolve, depth + 1)
        for name in required & properties.keys() & more.keys()
    )


def _followed(schema: object, draft: int, resolve: Resolve) -> Schema | None:
    """Returns what the schema, or what it refers to, says; None for what is no object."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping):
            return None
        found = modern(schema, draft)
        if "$ref" not in found or "type" in found or "properties" in found:
            return found
        schema = resolve({"$ref": found["$ref"]})
    return None


def _types(schema: Schema) -> frozenset[str]:
    named = schema.get("type")
    names = [named] if isinstance(named, str) else named
    found = _ALL
    if isinstance(names, list):
        found = frozenset("number" if one == "integer" else str(one) for one in names)
    values = _values(schema)
    return found if values is None else found & {_type_of(one) for one in values}


def _values(schema: Schema) -> list[object] | None:
    """Returns the only values that the schema allows, if it lists them."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _is_same(one: object, other: object) -> bool:
    """Returns whether the values may be equal; 1 and true are not, as JSON has them."""
    return _type_of(one) == _type_of(other) and one == other
