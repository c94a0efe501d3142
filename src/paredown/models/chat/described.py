"""Describes a turn's format to people: in what the model writes a call and its reasoning."""

from paredown.models.chat.turn_format import TurnFormat
from paredown.models.chat.written_calls import write_calls

_EXAMPLE = ("NAME", {"KEY": "VALUE"})


def described(form: TurnFormat) -> tuple[str, str]:
    """Returns a line on tools and one on reasoning. They hold texts of the template; whoever shows
    them escapes them."""
    return _tools(form), _reasoning(form)


def _tools(form: TurnFormat) -> str:
    found = form.tool_format
    if found is None:
        return "tools: none, or calls in a form that is not read"
    how_many = "" if found.is_parallel else ", one call a turn"
    return f"tools: {found.kind}{how_many}: {write_calls(found, [_EXAMPLE])}"


def _reasoning(form: TurnFormat) -> str:
    found = form.reasoning
    if found is None:
        return "reasoning: none"
    more = ", opened by the prompt" if found.is_opened else ""
    more += f", switched by {found.switch}" if found.switch else ""
    return f"reasoning: {found.start} ... {found.end}{more}"
