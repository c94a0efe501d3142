"""JSON Schema of what a sampling parameter may be."""

from collections.abc import Mapping

from paredown.engine.sampling.field_rules import (
    MAX_TOKEN_ID,
    Integer,
    Number,
    Rule,
    Texts,
    TokenIds,
    TokenNumbers,
    TokenSequences,
)

Schema = dict[str, object]
_TOKEN_ID: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_TOKEN_ID}


def rule_schema(rule: Rule) -> Schema:
    """Returns the limits of a rule; none where the type says all."""
    if isinstance(rule, Number):
        low = "exclusiveMinimum" if rule.above else "minimum"
        return {low: rule.low, "maximum": rule.high}
    if isinstance(rule, Integer):
        return {"minimum": rule.low, "maximum": rule.high}
    if isinstance(rule, Texts):
        return {"minLength": 1, "maxLength": rule.max_chars}
    if isinstance(rule, TokenIds):
        return {"minItems": rule.min_count, "maxItems": rule.max_count, "items": _TOKEN_ID}
    if isinstance(rule, TokenSequences):
        words = {"type": "array", "minItems": 1, "maxItems": rule.max_tokens, "items": _TOKEN_ID}
        return {"maxItems": rule.max_count, "items": words}
    if isinstance(rule, TokenNumbers):
        return {
            "maxProperties": rule.max_count,
            "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": {"type": "number", **rule_schema(rule.number)},
        }
    return {}


def limited(field: Mapping[str, object], limits: Schema) -> Schema:
    """Returns a field's schema with `limits` in each branch whose type they are for. Limits of
    texts hold for the texts of a list, too."""
    if "anyOf" in field:
        branches = field["anyOf"]
        assert isinstance(branches, list)
        return {**field, "anyOf": [limited(one, limits) for one in branches]}
    kind = field.get("type")
    if kind == "array" and "maxLength" in limits:
        items = field["items"]
        assert isinstance(items, dict)
        return {**field, "items": limited(items, limits)}
    if any(kind in _TYPES[name] for name in limits):
        return {**field, **_tighter(field, limits)}
    return dict(field)


# What each word of JSON Schema limits.
_TYPES: Mapping[str, tuple[str, ...]] = {
    "minimum": ("number", "integer"),
    "exclusiveMinimum": ("number", "integer"),
    "maximum": ("number", "integer"),
    "minLength": ("string",),
    "maxLength": ("string",),
    "minItems": ("array",),
    "maxItems": ("array",),
    "items": ("array",),
    "maxProperties": ("object",),
    "propertyNames": ("object",),
    "additionalProperties": ("object",),
}


def _tighter(field: Mapping[str, object], limits: Schema) -> Schema:
    """Keeps a limit of the field's own that says more: those of the server are tighter than those
    of the engine."""
    kept = dict(limits)
    for name, choose in (("maximum", min), ("maxItems", min), ("minimum", max), ("minItems", max)):
        own, other = field.get(name), limits.get(name)
        if isinstance(own, int | float) and isinstance(other, int | float):
            kept[name] = choose(own, other)
    return kept
