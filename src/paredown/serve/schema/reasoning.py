"""How much a model reasons before it answers, as clients ask for it."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from paredown.serve.errors import HttpError
from paredown.shown import quoted

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
# Templates know three; the others are the nearest of these.
_TEMPLATE_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}
# The names that templates use for a switch.
SWITCHES = ("enable_thinking", "thinking")
EFFORT = "reasoning_effort"
# Values that a client may hand to the template, with their types. A template is a program, so no
# other is passed on.
ALLOWED_VALUES: dict[str, type] = {
    "enable_thinking": bool,
    "thinking": bool,
    "preserve_thinking": bool,
    "clear_thinking": bool,
    "reasoning_effort": str,
    "thinking_mode": str,
    "date_string": str,
}
MAX_VALUE_CHARS = 64
MAX_VALUES = 16
Value = bool | Annotated[str, Field(max_length=MAX_VALUE_CHARS)] | None


def template_values(effort: Effort | None, given: Mapping[str, Value]) -> dict[str, object]:
    """Returns the values for the template that an effort stands for, then those that the client
    named. Raises HttpError for a name that is not allowed."""
    values: dict[str, object] = {}
    if effort is not None:
        values |= dict.fromkeys(SWITCHES, effort != "none")
    if effort not in (None, "none"):
        values[EFFORT] = _TEMPLATE_EFFORTS.get(effort, effort)
    for name, value in given.items():
        if value is None:
            continue
        kind = ALLOWED_VALUES.get(name)
        if kind is None or type(value) is not kind:
            wanted = "not passed on" if kind is None else f"should be {_KINDS[kind]}"
            path = f"chat_template_kwargs.{quoted(name, MAX_VALUE_CHARS)[1:-1]}"
            raise HttpError(
                400,
                f"{path}: {wanted}; allowed are {', '.join(ALLOWED_VALUES)}",
                param="chat_template_kwargs",
                code="invalid_value",
            )
        values[name] = value
    return values


_KINDS = {bool: "true or false", str: "a string"}
