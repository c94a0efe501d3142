"""CalledTools: the tools that a turn may call, as a request lists them."""

from collections.abc import Mapping, Sequence

# References may lead in a circle.
_MAX_DEPTH = 8
_ALL = frozenset(["string", "number", "integer", "boolean", "object", "array", "null"])


class CalledTools:
    """The functions of `tools`, which are objects {"type": "function", "function": {...}}."""

    def __init__(self, tools: Sequence[Mapping[str, object]]) -> None:
        functions = [tool["function"] for tool in tools if "function" in tool]
        self._schemas: dict[str, object] = {
            str(one["name"]): one.get("parameters") for one in functions if isinstance(one, Mapping)
        }
        # A name may begin another: the longest is looked for first.
        self.names = tuple(sorted(self._schemas, key=lambda name: (-len(name), name)))

    def __contains__(self, name: object) -> bool:
        return name in self._schemas

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def argument_types(self, name: str, key: str) -> frozenset[str]:
        """Returns the JSON types that the tool's schema allows an argument; all where it says
        nothing."""
        schema = self._schemas[name]
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        found = properties.get(key) if isinstance(properties, Mapping) else None
        return _types(found, schema, _MAX_DEPTH)


def _types(schema: object, root: object, depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or not depth:
        return _ALL
    found = _ALL
    match schema.get("type"):
        case str(type_name):
            found &= {type_name}
        case [*type_names]:
            found &= {one for one in type_names if isinstance(one, str)}
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(key), list):
            each = [_types(one, root, depth - 1) for one in choices]
            found &= frozenset().union(*each)
    if isinstance(parts := schema.get("allOf"), list):
        for part in parts:
            found &= _types(part, root, depth - 1)
    if "const" in schema:
        found &= _types_of([schema["const"]])
    if isinstance(values := schema.get("enum"), list):
        found &= _types_of(values)
    if isinstance(reference := schema.get("$ref"), str):
        found &= _types(_referred(reference, root), root, depth - 1)
    return found


def _referred(name: str, root: object) -> object:
    """Returns what a local reference such as "#/$defs/Unit" leads to; None for any other."""
    at = root
    for part in name.removeprefix("#/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        at = at.get(key) if isinstance(at, Mapping) else None
    return at


def _types_of(values: list[object]) -> frozenset[str]:
    return frozenset().union(*(types_of(value) for value in values))


def types_of(value: object) -> frozenset[str]:
    """Returns the names that JSON Schema has for the type of a JSON value."""
    match value:
        case None:
            return frozenset(["null"])
        case bool():
            return frozenset(["boolean"])
        case int():
            return frozenset(["integer", "number"])
        case float():
            return frozenset(["integer", "number"] if value.is_integer() else ["number"])
        case str():
            return frozenset(["string"])
        case list():
            return frozenset(["array"])
    return frozenset(["object"])
