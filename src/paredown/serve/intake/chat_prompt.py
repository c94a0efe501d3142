"""ChatPrompt: a conversation as text, with what the template says about its answer."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paredown.errors import RequestError
from paredown.models.chat.numbered_ids import with_numbered_ids
from paredown.models.chat.rendered_chat import RenderedChat
from paredown.models.chat.turn_format import TurnFormat
from paredown.serve.errors import HttpError
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.message import Message
from paredown.serve.schema.reasoning import EFFORT, SWITCHES
from paredown.serve.schema.tools import ToolUse
from paredown.serve.state import ServerTokenizer

_SHORT_ID_CHARS = 9
# What is said in turn; the system speaks beside it.
_TURNS = ("user", "assistant", "tool")


@dataclass(frozen=True, kw_only=True)
class ChatPrompt:
    """`rendered` is the text of the prompt, and `form` how the model writes its turn.
    `reasoning_end_id` is the token that ends reasoning, where it is one. `notes` say what was asked
    for in vain."""

    rendered: RenderedChat
    form: TurnFormat
    is_reasoning_open: bool
    reasoning_end_id: int | None
    notes: tuple[str, ...]


def render_chat(tokenizer: ServerTokenizer, asked: ChatRequest, use: ToolUse | None) -> ChatPrompt:
    """Renders a conversation; that may take a while. Raises HttpError for tools that the template
    does not show, and what `Tokenizer.render_chat` raises."""
    form = tokenizer.turn_format
    if use is not None and form.tool_format is None:
        raise HttpError(
            400,
            "the model's chat template shows it no tools, or calls that cannot be read; leave them "
            "out, or start the server with --tool-format",
            param="tools",
            code="no_tools",
        )
    values, notes = _values(tokenizer, asked, form)
    tools = None if use is None else list(use.tools)
    messages = _for_template(asked.messages, form)
    try:
        rendered = tokenizer.render_marked(messages, tools, template_values=values)
    except RequestError:
        # Mistral's templates take ids of nine letters and digits alone, and clients send ours.
        short = _with_short_ids(messages)
        if short == messages:
            raise
        rendered = tokenizer.render_marked(short, tools, template_values=values)
    return ChatPrompt(
        rendered=rendered,
        form=form,
        is_reasoning_open=form.is_reasoning_open(rendered.text),
        reasoning_end_id=_reasoning_end_id(tokenizer, form),
        notes=notes,
    )


def _for_template(messages: Sequence[Message], form: TurnFormat) -> list[dict[str, object]]:
    found = form.tool_format
    as_text = found is not None and found.arguments_as == "text"
    made = [message.for_template(arguments_as_text=as_text) for message in messages]
    return with_numbered_ids(made) if found is not None and found.numbers_calls else made


def _with_short_ids(messages: Sequence[dict[str, Any]]) -> list[dict[str, object]]:
    """Returns the messages with an id of nine letters and digits in place of each call's."""
    made = []
    for message in messages:
        message = dict(message)
        if (call_id := message.get("tool_call_id")) is not None:
            message["tool_call_id"] = _short_id(call_id)
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [{**one, "id": _short_id(one["id"])} for one in calls]
        made.append(message)
    return made


def _short_id(call_id: str) -> str:
    if len(call_id) == _SHORT_ID_CHARS and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT_ID_CHARS]


def _values(
    tokenizer: ServerTokenizer, asked: ChatRequest, form: TurnFormat
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Returns the values that the template reads, and notes on what was asked for in vain."""
    notes = []
    if tokenizer.reads_last_turn and any(one.role in _TURNS for one in asked.messages[:-1]):
        notes.append("turns before the last message have no effect: the model has no chat template")
    if asked.verbosity is not None:
        notes.append("verbosity has no effect")
    if asked.thinking_budget is not None and form.reasoning is None:
        notes.append("thinking_budget has no effect: the chat template shows no reasoning")
    values = asked.template_values()
    if not values:
        return {}, tuple(notes)
    known = tokenizer.template_value_names
    for name in sorted((asked.chat_template_kwargs or {}).keys() - known):
        notes.append(
            f"chat_template_kwargs.{name} has no effect: the chat template does not read it"
        )
    if asked.reasoning_effort is not None and not known.intersection((EFFORT, *SWITCHES)):
        notes.append("reasoning_effort has no effect: the chat template has no such value")
    return {name: value for name, value in values.items() if name in known}, tuple(notes)


def _reasoning_end_id(tokenizer: ServerTokenizer, form: TurnFormat) -> int | None:
    if form.reasoning is None:
        return None
    token_ids = tokenizer.encode(form.reasoning.end.strip())
    return token_ids[0] if len(token_ids) == 1 else None
