"""Negates JSON schemas, for `not`, `if` and `oneOf`: a grammar can only say what an answer is."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from paredown.engine.grammar.not_supported import NotSupportedError
from paredown.engine.grammar.schema_drafts import Schema, modern

_TYPES = ("null", "boolean", "number", "string", "array", "object")
# A keyword of the first list is not kept exactly where its opposite is.
_OPPOSITES = {
    "minimum": ("number", "exclusiveMaximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
}
_SILENT = frozenset(
    {
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "id",
        "readOnly",
        "title",
        "writeOnly",
    }
)


def negated(schema: object, draft: int, keyword: str) -> Schema | bool:
    """Returns a schema that allows what `schema` does not, and nothing else. Raises
    NotSupportedError, which names `keyword`, where that cannot be said."""
    if isinstance(schema, bool):
        return not schema
    if not isinstance(schema, Mapping):
        raise NotSupportedError(f"{keyword}: a schema is an object, true or false")
    options: list[Schema | bool] = []
    for name, value in modern(schema, draft).items():
        if name not in _SILENT:
            options += _negated_keyword(name, value, draft, keyword)
    options = [one for one in options if one is not False]
    return {"anyOf": options} if options else False


def _negated_keyword(name: str, value: object, draft: int, keyword: str) -> list[Schema | bool]:
    """Returns schemas one of which allows what does not keep this keyword."""
    if name == "type":
        return [_other_types([value] if isinstance(value, str) else value, keyword)]
    if name in _OPPOSITES and isinstance(value, int | float):
        kind, opposite, change = _OPPOSITES[name]
        bound = value + change
        return [{"type": kind, opposite: bound}] if kind == "number" or bound >= 0 else []
    if name in ("const", "enum"):
        values = [value] if name == "const" else value
        return [_other_values(values if isinstance(values, list) else [values], keyword)]
    if name == "required" and isinstance(value, list):
        return [{"type": "object", "properties": {one: False}} for one in value]
    if name == "properties" and isinstance(value, Mapping):
        return [
            {"type": "object", "required": [key], "properties": {key: negated(one, draft, keyword)}}
            for key, one in value.items()
            if one is not True
        ]
    if name == "not":
        return [value if isinstance(value, dict | bool) else negated(value, draft, keyword)]
    if name == "allOf" and isinstance(value, list):
        return [negated(one, draft, keyword) for one in value]
    if name == "anyOf" and isinstance(value, list):
        return [{"allOf": [negated(one, draft, keyword) for one in value]}]
    raise NotSupportedError(f"{keyword}: {name} in it is not supported")


def _other_types(types: object, keyword: str) -> Schema | bool:
    if not isinstance(types, list):
        raise NotSupportedError(f"{keyword}: type in it is a text or a list")
    # Where integers are forbidden, other numbers are left out with them.
    taken = [*types, "number"] if "integer" in types else types
    left = [one for one in _TYPES if one not in taken]
    return {"type": left} if left else False


def _other_values(values: list[object], keyword: str) -> Schema:
    """Returns a schema of everything but these values."""
    texts, numbers, simple = [], [], []
    for value in values:
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, bool) or value is None:
            simple.append(value)
        elif isinstance(value, int | float):
            numbers.append(value)
        else:
            raise NotSupportedError(f"{keyword}: lists and objects in it are not supported")
    options: list[Schema] = [{"type": ["array", "object"]}]
    options.append({"type": "string", "pattern": _other_texts(texts)} if texts else _of("string"))
    options += _other_numbers(sorted(set(numbers)))
    left = [one for one in (None, True, False) if not any(one is seen for seen in simple)]
    options += [{"enum": left}] if left else []
    return {"anyOf": options}


def _of(kind: str) -> Schema:
    return {"type": kind}


def _other_numbers(numbers: Sequence[float]) -> list[Schema]:
    if not numbers:
        return [_of("number")]
    options: list[Schema] = [{"type": "number", "exclusiveMaximum": numbers[0]}]
    for low, high in pairwise(numbers):
        options.append({"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high})
    return [*options, {"type": "number", "exclusiveMinimum": numbers[-1]}]


def _other_texts(texts: Sequence[str]) -> str:
    """Returns a pattern of all texts but these, without looking ahead: at each character there
    either stands another than all of them have, or the rest is another than their rests."""
    return f"^{_other_rests(sorted(set(texts)))}$"


def _other_rests(rests: Sequence[str]) -> str:
    if not rests:
        return r"[\s\S]*"
    by_first: dict[str, list[str]] = {}
    for rest in rests:
        if rest:
            by_first.setdefault(rest[0], []).append(rest[1:])
    firsts = "".join(_in_class(one) for one in by_first)
    options = [rf"[^{firsts}][\s\S]*" if firsts else r"[\s\S]+"]
    options += [escaped(one) + _other_rests(tails) for one, tails in by_first.items()]
    if "" not in rests:
        options.append("")
    return f"(?:{'|'.join(options)})"


def escaped(text: str) -> str:
    """Returns the pattern of a text, in the syntax of ECMAScript and of Rust."""
    return "".join(f"\\{one}" if one in r"\.+*?()|[]{}^$" else one for one in text)


def _in_class(character: str) -> str:
    return f"\\{character}" if character in r"\]^-[" else character
