"""A turn's format in words."""

from fakes.tool_formats import TOOL_FORMATS
from paredown.models.chat.described import described
from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.models.chat.turn_format import TurnFormat


def test_a_call_is_shown_as_the_model_writes_it() -> None:
    tools, reasoning = described(TurnFormat(tool_format=TOOL_FORMATS["bare_json"]))
    assert tools == (
        'tools: json, one call a turn: {"name": "NAME", "parameters": {"KEY": "VALUE"}}'
    )
    assert reasoning == "reasoning: none"


def test_reasoning_is_shown_with_what_switches_it() -> None:
    form = ReasoningFormat(
        start="<think>", end="</think>", is_opened=True, switch="enable_thinking"
    )
    tools, reasoning = described(TurnFormat(reasoning=form))
    assert tools.startswith("tools: none")
    assert reasoning == (
        "reasoning: <think> ... </think>, opened by the prompt, switched by enable_thinking"
    )
