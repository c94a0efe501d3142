"""The facts that a turn's format has of its template."""

from pathlib import Path

import pytest

from paredown.models.chat.tool_format import ArgumentsAs
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.text.chat_templates import ChatTemplates

TEMPLATES = Path(__file__).parent / "templates"


def over_calls(expression: str) -> str:
    return (
        "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}<call>"
        f"{{{{ c.function.name }}}}:{{{{ {expression} }}}}</call>{{% endfor %}}{{% endfor %}}"
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("c.function.arguments | tojson", "object"),
        ("'' + c.function.arguments", "text"),
        (
            "c.function.arguments if c.function.arguments is string "
            "else c.function.arguments | tojson",
            "object",
        ),
    ],
)
def test_how_the_template_takes_arguments_is_found(expression: str, expected: ArgumentsAs) -> None:
    found = TurnFormat.of(ChatTemplates(over_calls(expression), "model"), {}).tool_format
    assert found is not None
    assert found.arguments_as == expected


def test_markers_of_calls_and_reasoning_are_listed() -> None:
    source = (TEMPLATES / "thinking.jinja").read_text()
    markers = TurnFormat.of(ChatTemplates(source, "model"), {}).markers
    assert {"<think>", "</think>", "<tool_call>\n", "\n</tool_call>"} <= set(markers)
