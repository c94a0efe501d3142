"""JSON schemas as the grammar library reads them: they allow no more than they did."""

import itertools
import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.engine.grammar.json_schema import lowered_schema
from paredown.engine.grammar.not_supported import NotSupportedError
from paredown.engine.grammar.schema_drafts import LATEST
from paredown.engine.grammar.schema_negation import negated

LEAVES = [None, True, False, 0, 1, -2, 2.5, "", "a", "ab", "b-c"]
VALUES = [
    *LEAVES,
    [],
    *([one] for one in LEAVES),
    *map(list, itertools.product([1, "a", None], repeat=2)),
    [1, "a", "a"],
    {},
    *({name: one} for name in ("a", "b", "xc") for one in LEAVES),
    *({"a": one, "b": other} for one in (1, "a", None) for other in (1, "a", None)),
    {"a": 1, "b": "a", "c": None},
]


def allows(schema: object, value: object) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(value)  # type: ignore[arg-type]


def check(schema: object, *, is_exact: bool = True) -> None:
    lowered = lowered_schema(schema)
    json.dumps(lowered)
    for value in VALUES:
        if is_exact:
            assert allows(lowered, value) == allows(schema, value), (lowered, value)
        elif allows(lowered, value):
            assert allows(schema, value), (lowered, value)


COMMON = {"properties": {"a": {"type": "integer"}}}
EXACT = {
    "not a type": {"not": {"type": ["string", "array"]}},
    "not bounds": {"not": {"minimum": 1, "maxLength": 1}},
    "not required": {"not": {"required": ["a", "b"]}},
    "not properties": {"not": {"properties": {"a": {"type": "string"}, "b": True}}},
    "not texts": {"not": {"enum": ["a", "ab", "", "b-c"]}},
    "not values": {"not": {"enum": [1, None, 2.5, True]}},
    "not a text": {"type": "string", "not": {"const": "ab"}},
    "not not": {"not": {"not": {"type": "object"}}},
    "nothing allowed below": {"properties": {"a": {"not": {}}}},
    "if then": {"if": {"type": "string"}, "then": {"minLength": 2}},
    "if then else": {
        "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
        "then": {"required": ["b"]},
        "else": {"maxProperties": 1},
    },
    "if else": {"if": {"minimum": 1}, "else": {"const": -2}},
    "then alone": {"then": {"const": 0}, "else": {"const": 0}},
    "dependent required": {"dependentRequired": {"a": ["b"], "b": []}},
    "dependent schemas": {"dependentSchemas": {"a": {"required": ["b"]}, "b": False}},
    "names by pattern": {"propertyNames": {"pattern": "^x"}},
    "names by length": {"propertyNames": {"maxLength": 1, "type": "string"}},
    "names listed": {"propertyNames": {"enum": ["a", "b"]}},
    "no names": {"propertyNames": False},
    "unevaluated beside": {**COMMON, "unevaluatedProperties": False},
    "unevaluated with allOf": {
        **COMMON,
        "allOf": [{"patternProperties": {"^x": True}}],
        "unevaluatedProperties": {"type": "string"},
    },
    "unevaluated with anyOf": {
        "anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"required": ["b"]}],
        "unevaluatedProperties": False,
    },
    "unevaluated with if": {
        "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
        "then": {"properties": {"b": True}},
        "unevaluatedProperties": False,
    },
    "unevaluated with a reference": {
        "$ref": "#/$defs/one",
        "unevaluatedProperties": False,
        "$defs": {"one": COMMON},
    },
    "unevaluated items": {"prefixItems": [{"type": "integer"}], "unevaluatedItems": False},
    "all evaluated": {"additionalProperties": {"type": "string"}, "unevaluatedProperties": False},
    "references with escapes": {
        "$ref": "#/$defs/a~1b%25c",
        "$defs": {"a/b%c": {"type": "string"}},
    },
    "anchors": {"items": {"$ref": "#here"}, "$defs": {"x": {"$anchor": "here", "type": "null"}}},
    "names of parts": {
        "$id": "https://example.com/root",
        "items": {"$ref": "part"},
        "$defs": {"x": {"$id": "part", "$ref": "#/$defs/y", "$defs": {"y": {"type": "null"}}}},
    },
    "recursion": {"properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
    "dynamic reference": {
        "items": {"$dynamicRef": "#it"},
        "$defs": {"x": {"$dynamicAnchor": "it", "type": "integer"}},
    },
    "what is no keyword": {"x-guidance": {"lenient": True}, "foo": [], "type": "string"},
    "format of another type": {"type": "integer", "format": "int32"},
    "few unique items": {"uniqueItems": True, "maxItems": 1},
}


@pytest.mark.parametrize("name", EXACT)
def test_keywords_are_said_by_others(name: str) -> None:
    check(EXACT[name])


def test_wanted_items_come_first() -> None:
    for counts in ({}, {"minContains": 2}, {"maxContains": 1}, {"minContains": 0}):
        check({"contains": {"type": "integer"}, **counts}, is_exact=False)


def test_options_of_one_of_are_told_apart() -> None:
    schema = {"oneOf": [{"minimum": 0}, {"maximum": 1}, {"type": "string", "maxLength": 1}]}
    lowered = lowered_schema(schema, parts_one_of=True)
    assert [allows(lowered, one) for one in VALUES] == [allows(schema, one) for one in VALUES]


ONE_OF = {
    "types": [{"type": "string"}, {"type": ["null", "object"]}, {"const": 1}],
    "values": [{"enum": ["a", 1]}, {"const": True}, {"enum": ["ab", None, 0]}],
    "a property": [
        {"type": "object", "required": ["a"], "properties": {"a": {"const": 1}}},
        {"type": "object", "properties": {"a": {"enum": ["a", None]}}},
    ],
    "references": [{"$ref": "#/$defs/s"}, {"$ref": "#/$defs/n"}, {"type": "array"}],
}


@pytest.mark.parametrize("name", ONE_OF)
@pytest.mark.parametrize("beside", [{}, {"anyOf": [{"type": "string"}, {"type": "object"}]}])
def test_options_that_exclude_each_other_are_those_of_any_of(
    name: str, beside: dict[str, object]
) -> None:
    parts = {"s": {"type": "string"}, "n": {"$ref": "#/$defs/i"}, "i": {"type": "integer"}}
    for schema in (
        {"oneOf": ONE_OF[name], **beside, "$defs": parts},
        {**beside, "oneOf": ONE_OF[name], "$defs": parts},
    ):
        assert "oneOf" not in json.dumps(lowered_schema(schema))
        check(schema)


def test_options_that_may_overlap_stay_one_of() -> None:
    for options in (
        [{"type": "integer"}, {"type": "number"}],
        [{"const": 1}, {"enum": [1.0]}],
        [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}],
        [{"$ref": "#"}, {"type": "null"}],
        [True, {"type": "null"}],
    ):
        assert "oneOf" in lowered_schema({"oneOf": options})


@pytest.mark.parametrize(
    ("draft", "schema", "good", "bad"),
    [
        ("draft-04", {"minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ("draft-04", {"const": 5}, 6, None),
        ("draft-07", {"items": [{"type": "null"}], "additionalItems": False}, [None], [None, 1]),
        (
            "draft-07",
            {"dependencies": {"a": ["b"], "c": {"type": "null"}}},
            {"a": 1, "b": 1},
            {"a": 1},
        ),
        (
            "draft-07",
            {"$ref": "#/definitions/a", "type": "null", "definitions": {"a": {}}},
            5,
            None,
        ),
        ("draft-07", {"unevaluatedItems": False}, [1], None),
    ],
)
def test_older_drafts_mean_what_they_meant(
    draft: str, schema: dict[str, object], good: object, bad: object
) -> None:
    schema = {"$schema": f"http://json-schema.org/{draft}/schema#", **schema}
    lowered = lowered_schema(schema)
    assert allows(lowered, good)
    assert bad is None or not allows(lowered, bad)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"uniqueItems": True}, "uniqueItems"),
        ({"minProperties": 2}, "minProperties"),
        ({"minProperties": 3, "required": ["a"]}, "minProperties"),
        ({"format": "regex"}, "format: regex"),
        ({"$ref": "other.json"}, r"\$ref: nothing"),
        ({"$ref": 5}, r"\$ref: a reference"),
        ({"not": {"multipleOf": 2}}, "not: multipleOf"),
        ({"if": {"$ref": "#"}, "then": False}, r"if: \$ref"),
        ({"allOf": {}}, "allOf: it is a list"),
        ({"properties": []}, "properties: it is an object"),
        ({"items": 5}, "a schema is"),
        ({"enum": [10**40]}, "enum: numbers"),
        ({"contains": {}, "minContains": 500}, "minContains"),
        ({"propertyNames": {"not": {}}}, "propertyNames: not"),
        ({"$ref": "#", "unevaluatedProperties": False}, "leads to itself"),
        ({"items": {"contains": {}}, "unevaluatedItems": False, "contains": {}}, "."),
        ({"prefixItems": [1]}, "a schema is"),
    ],
    ids=str,
)
def test_what_cannot_be_said_is_named(schema: object, told: str) -> None:
    if told == ".":
        lowered_schema(schema)
        return
    with pytest.raises(NotSupportedError, match=told):
        lowered_schema(schema)


SCALARS = st.sampled_from(LEAVES)
SCHEMAS = st.recursive(
    st.one_of(
        st.booleans(),
        st.sampled_from(["string", "number", "null", "object", "array"]).map(lambda x: {"type": x}),
        st.sampled_from(["minimum", "exclusiveMaximum"]).flatmap(
            lambda name: st.integers(-2, 2).map(lambda x: {name: x})
        ),
        st.sampled_from(["minLength", "maxItems", "minProperties"]).flatmap(
            lambda name: st.integers(0, 2).map(lambda x: {name: x})
        ),
        st.lists(SCALARS, min_size=1, max_size=3).map(lambda x: {"enum": x}),
        st.lists(st.sampled_from("ab"), max_size=2, unique=True).map(lambda x: {"required": x}),
    ),
    lambda inner: st.one_of(
        inner.map(lambda x: {"not": x}),
        st.lists(inner, min_size=1, max_size=2).map(lambda x: {"anyOf": x}),
        st.lists(inner, min_size=1, max_size=2).map(lambda x: {"allOf": x}),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(lambda x: {"properties": x}),
        st.tuples(inner, inner, inner).map(lambda x: {"if": x[0], "then": x[1], "else": x[2]}),
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(SCHEMAS)
def test_a_negated_schema_allows_just_the_others(schema: object) -> None:
    try:
        other = negated(schema, LATEST, "not")
    except NotSupportedError:
        return
    for value in VALUES:
        assert allows(other, value) != allows(schema, value)


@settings(max_examples=150, deadline=None)
@given(SCHEMAS)
def test_a_lowered_schema_allows_the_same(schema: object) -> None:
    try:
        lowered = lowered_schema(schema)
    except NotSupportedError:
        return
    for value in VALUES:
        assert allows(lowered, value) == allows(schema, value)
