"""The marks of reasoning that are found in a chat template."""

from pathlib import Path

import pytest

from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.text.chat_templates import ChatTemplates

TEMPLATES = Path(__file__).parent / "templates"
THINK = {"start": "<think>", "end": "</think>"}
USER: list[dict[str, object]] = [{"role": "user", "content": "hi"}]


def templates(name: str) -> ChatTemplates:
    return ChatTemplates((TEMPLATES / f"{name}.jinja").read_text(), name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("thinking", ReasoningFormat(**THINK, switch="enable_thinking")),
        ("opened", ReasoningFormat(**THINK, is_opened=True)),
        ("bracket_thinking", ReasoningFormat(start="[THINK]", end="[/THINK]")),
        ("tag_json", None),
        ("without_tools", None),
    ],
)
def test_the_marks_of_reasoning_are_found(name: str, expected: ReasoningFormat | None) -> None:
    assert TurnFormat.of(templates(name), {}).reasoning == expected


@pytest.mark.parametrize(
    ("name", "values", "is_open"),
    [
        ("opened", {}, True),
        ("thinking", {}, False),
        ("thinking", {"enable_thinking": False}, False),
        ("bracket_thinking", {"reasoning_effort": "high"}, True),
        ("bracket_thinking", {"reasoning_effort": "low"}, False),
        ("without_tools", {}, False),
    ],
)
def test_a_prompt_says_whether_it_ends_inside_reasoning(
    name: str, values: dict[str, object], is_open: bool
) -> None:
    found = templates(name)
    prompt = found.render(USER, tools=None, special_tokens={}, template_values=values)
    assert TurnFormat.of(found, {}).is_reasoning_open(prompt) == is_open
