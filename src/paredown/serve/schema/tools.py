"""The tools of a chat, and which of them a model may or must call."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from paredown.serve.errors import HttpError
from paredown.serve.schema.strict import Strict

MAX_TOOLS = 128
MAX_TOOLS_CHARS = 2**18
MAX_SCHEMA_DEPTH = 32
JsonObject = dict[str, Any]
FunctionName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_.:/-]+$")]


class FunctionTool(Strict):
    """A function that the model may call; `parameters` is the JSON schema of its arguments."""

    name: FunctionName
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(Strict):
    type: Literal["function"]
    function: FunctionTool
    # As the client sent it: templates show a tool's fields in their order.
    _given: JsonObject = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, fields: Any, handler: ModelWrapValidatorHandler["Tool"]) -> "Tool":
        if isinstance(fields, dict) and (kind := fields.get("type")) != "function":
            raise PydanticCustomError(
                "other_tool",
                "Only tools of type 'function' are served, not {kind}",
                {"kind": repr(kind)[:64]},
            )
        made = handler(fields)
        made._given = fields
        return made

    @property
    def given(self) -> JsonObject:
        return self._given


class NamedFunction(Strict):
    name: FunctionName


class NamedTool(Strict):
    type: Literal["function"]
    function: NamedFunction


Named = Annotated[list[NamedTool], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]


class AllowedTools(Strict):
    mode: Literal["auto", "required"]
    tools: Named


class AllowedToolsChoice(Strict):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


Tools = Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)]
ToolChoice = Literal["none", "auto", "required"] | NamedTool | AllowedToolsChoice


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """The tools that a model is shown, as JSON objects. It answers or calls some of them, or
    `must_call`; then `name` is the one that it must call, where it has no choice. Unless calls
    `are_parallel` it makes one."""

    tools: tuple[JsonObject, ...]
    must_call: bool = False
    name: str | None = None
    are_parallel: bool = True

    @property
    def num_chars(self) -> int:
        """Returns how long the tools are as JSON."""
        return sum(len(json.dumps(tool, ensure_ascii=False)) for tool in self.tools)


def tool_use(
    tools: Sequence[Tool] | None, choice: ToolChoice | None, parallel: bool | None
) -> ToolUse | None:
    """Returns how tools are used, or None for a chat without. Raises HttpError for tools that are
    too large together, and for a choice among others than these."""
    if not tools:
        if choice not in (None, "none", "auto"):
            raise HttpError(
                400, "tool_choice needs tools", param="tool_choice", code="invalid_value"
            )
        return None
    by_name = _by_name(tools)
    if choice == "none":
        return None
    are_parallel = parallel is not False
    if isinstance(choice, NamedTool):
        name = choice.function.name
        _check_known([name], by_name)
        return ToolUse(
            tools=tuple(by_name.values()), must_call=True, name=name, are_parallel=are_parallel
        )
    if isinstance(choice, AllowedToolsChoice):
        names = [one.function.name for one in choice.allowed_tools.tools]
        _check_known(names, by_name)
        allowed = tuple(tool for name, tool in by_name.items() if name in names)
        must_call = choice.allowed_tools.mode == "required"
        return ToolUse(tools=allowed, must_call=must_call, are_parallel=are_parallel)
    return ToolUse(
        tools=tuple(by_name.values()), must_call=choice == "required", are_parallel=are_parallel
    )


def _by_name(tools: Sequence[Tool]) -> dict[str, JsonObject]:
    by_name: dict[str, JsonObject] = {}
    num_chars = 0
    for number, tool in enumerate(tools):
        name = tool.function.name
        if name in by_name:
            raise _refused(f"tools.{number}: there are two tools of the name '{name}'")
        if not _is_shallow(tool.given, MAX_SCHEMA_DEPTH):
            raise _refused(f"tools.{number}: nested deeper than {MAX_SCHEMA_DEPTH} levels")
        num_chars += len(json.dumps(tool.given, ensure_ascii=False))
        if num_chars > MAX_TOOLS_CHARS:
            raise _refused(f"the tools have more than {MAX_TOOLS_CHARS} characters together")
        by_name[name] = tool.given
    return by_name


def _check_known(names: Sequence[str], known: Mapping[str, object]) -> None:
    for name in names:
        if name not in known:
            raise HttpError(
                400,
                f"tool_choice: there is no tool '{name}' among the tools",
                param="tool_choice",
                code="invalid_value",
            )


def _refused(message: str) -> HttpError:
    return HttpError(400, message, param="tools", code="invalid_value")


def _is_shallow(value: object, depth: int) -> bool:
    """Returns whether lists and objects are nested at most `depth` deep."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(one, depth - 1) for one in inner)
