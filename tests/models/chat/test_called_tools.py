"""The types that a tool's schema allows an argument."""

import pytest

from fakes.turns import tool
from paredown.models.chat.called_tools import CalledTools, types_of

ALL = {"string", "number", "integer", "boolean", "object", "array", "null"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"enum": ["a", 1]}, {"string", "integer", "number"}),
        ({"const": True}, {"boolean"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        ({"oneOf": [{"type": "object"}, {"enum": [[1]]}]}, {"object", "array"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, {"string"}),
        ({"$ref": "#/$defs/Unit"}, {"string"}),
        ({"$ref": "#/$defs/a~1b"}, {"array"}),
        ({"$ref": "#/$defs/Loop"}, ALL),
        ({"$ref": "#/$defs/Missing"}, ALL),
        ({"$ref": "https://example.org/unit"}, ALL),
        ({}, ALL),
        (True, ALL),
        ({"type": 5, "enum": "x", "anyOf": {}}, ALL),
    ],
)
def test_types_are_those_of_the_schema(schema: object, expected: set[str]) -> None:
    parameters = {
        "type": "object",
        "properties": {"a": schema},
        "$defs": {
            "Unit": {"enum": ["cm", "inch"]},
            "a/b": {"type": "array"},
            "Loop": {"$ref": "#/$defs/Loop"},
        },
    }
    tools = CalledTools([{"type": "function", "function": {"name": "f", "parameters": parameters}}])
    assert tools.argument_types("f", "a") == expected
    assert tools.argument_types("f", "b") == ALL


@pytest.mark.parametrize("parameters", [None, [], "x", {"properties": []}])
def test_a_tool_without_a_schema_allows_everything(parameters: object) -> None:
    tools = CalledTools([{"type": "function", "function": {"name": "f", "parameters": parameters}}])
    assert tools.argument_types("f", "a") == ALL


def test_longer_names_come_first() -> None:
    tools = CalledTools([tool("add"), tool("add_all"), tool("note")])
    assert tools.names == ("add_all", "note", "add")
    assert "add" in tools
    assert "ad" not in tools
    assert not CalledTools([])


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "boolean"),
        (1, "integer"),
        (1.5, "number"),
        (2.0, "integer"),
        ("a", "string"),
        ([], "array"),
        ({}, "object"),
    ],
)
def test_a_value_has_its_type(value: object, name: str) -> None:
    assert name in types_of(value)
    assert "integer" not in types_of(1.5)
