"""ChatTemplates: the chat templates of a checkpoint by their names.

A checkpoint has one template, or several for different kinds of chat. Nothing fails here before a
chat is requested: a model with a damaged template still completes plain text.

A template is a program by whoever made the model. It runs in its own process, with limits on time,
memory and output (models/text/confined_process.py).
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from paredown.errors import CheckpointError, RequestError
from paredown.files.model_file import read_model_file
from paredown.models.text.confined_process import (
    ConfinedProcess,
    Confinement,
    LimitError,
    NoProcessError,
    NotStartedError,
    ProgramError,
)
from paredown.models.text.template_answer import AnswerKind, read_answer
from paredown.units import MEBI

DEFAULT = "default"
# The template that replaces the default one where tools are given.
TOOL_USE = "tool_use"
TEMPLATE_FILE = "chat_template.jinja"
# The folder of further templates, each as NAME.jinja.
TEMPLATE_FOLDER = "additional_chat_templates"
_MAX_TEMPLATE_BYTES = 1 << 20
# Names for a message's reasoning; templates read the first one.
_REASONING = ("reasoning_content", "thinking", "reasoning")
# The longest known template has 0.03 million.
MAX_TEMPLATE_CHARS = 1_000_000
MAX_TEMPLATES = 64
# A chat of 4,096 messages takes 0.06 s, and one of 2 MB with JSON tools 0.1 s.
MAX_RENDER_CPU_S = 0.5
# A rendered chat may have this many characters, plus this many times those of its input.
MAX_ADDED_CHARS = MEBI
MAX_GROWTH = 4
# What every chat gives its template, or templates take from special tokens.
_OWN_NAMES = frozenset(
    ["messages", "tools", "documents", "add_generation_prompt"]
    + [f"{name}_token" for name in ("bos", "eos", "unk", "pad", "sep", "cls", "mask")]
)
_CONFINEMENT = Confinement(
    target="paredown.models.text.template_program:make_renderer",
    max_memory_bytes=512 * MEBI,
    patience_s=0.1,
)
Message = Mapping[str, object]


class TemplateLimitError(RequestError):
    """Raised for a chat at which a template came to a limit of time, memory or output."""


class ChatTemplates:
    """The templates of one checkpoint. `source` is `chat_template` of tokenizer_config.json: a
    text, or several as a list of {"name", "template"} or an object of texts by name. An Exception
    says why it could not be read; None means no template. `where` names the file in messages.
    `reads_last_turn` says that turns before the user's last message are left out."""

    def __init__(self, source: object, where: str, *, reads_last_turn: bool = False) -> None:
        self._source = source
        self._where = where
        self.reads_last_turn = reads_last_turn
        self._process: ConfinedProcess | None = None

    @classmethod
    def of_folder(cls, folder: Path, config: Mapping[str, object]) -> "ChatTemplates":
        """Reads the folder's template files, or else its tokenizer_config.json, given as
        `config`."""
        files = {DEFAULT: folder / TEMPLATE_FILE}
        others = sorted((folder / TEMPLATE_FOLDER).glob("*.jinja"))
        files |= {path.name.removesuffix(".jinja"): path for path in others}
        files = {name: path for name, path in files.items() if os.path.lexists(path)}
        if len(files) > MAX_TEMPLATES:
            problem = ValueError(f"{len(files):,} templates, more than {MAX_TEMPLATES}")
            return cls({DEFAULT: problem}, str(folder))
        if not files:
            return cls(config.get("chat_template"), str(folder / "tokenizer_config.json"))
        return cls({name: _read(path, folder) for name, path in files.items()}, str(folder))

    def __bool__(self) -> bool:
        return self._source is not None

    def texts(self) -> dict[str, str]:
        """Returns the templates by name; a single one is the default. Raises CheckpointError for an
        invalid template."""
        source = self._source
        if source is None:
            return {}
        if isinstance(source, Sequence) and not isinstance(source, str):
            try:
                source = {entry["name"]: entry["template"] for entry in source}
            except (LookupError, TypeError) as error:
                raise self._damaged(error) from error
        named = source if isinstance(source, Mapping) else {DEFAULT: source}
        if len(named) > MAX_TEMPLATES:
            raise self._damaged(f"{len(named):,} templates, more than {MAX_TEMPLATES}")
        for name, text in named.items():
            if not isinstance(name, str):
                raise self._damaged(f"expected a text as name, not {type(name).__name__}")
            if isinstance(text, Exception):
                raise self._damaged(text) from text
            if not isinstance(text, str):
                raise self._damaged(f"expected a text, not {type(text).__name__}")
            if len(text) > MAX_TEMPLATE_CHARS:
                raise self._damaged(f"{len(text):,} characters, more than {MAX_TEMPLATE_CHARS:,}")
        return dict(named)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] | None,
        special_tokens: Mapping[str, str],
        opens_answer: bool = True,
        template_values: Mapping[str, object] | None = None,
    ) -> str:
        """Returns the conversation as Transformers renders it, up to where its answer starts, or up
        to its last message unless it `opens_answer`. `template_values` are further names for the
        template to read; ours come first (`value_names`). Raises RequestError where no template
        fits, or the template refuses the chat, TemplateLimitError where it reaches a limit, and
        CheckpointError for a damaged template."""
        name = self._name(has_tools=tools is not None)
        if not messages:
            raise RequestError(
                "a conversation has no messages", seen="none", remedy="Send at least one."
            )
        values = {
            **(template_values or {}),
            **special_tokens,
            "messages": [_as_templates_read(message) for message in messages],
            "tools": tools,
            "documents": None,
            "add_generation_prompt": opens_answer,
        }
        return self._text_of(self._ask(name, values))

    def _text_of(self, answer: bytes) -> str:
        kind, text = read_answer(answer)
        if kind is AnswerKind.TEXT:
            return text
        if kind is AnswerKind.DAMAGED:
            raise self._damaged(text)
        if kind is AnswerKind.TOO_LONG:
            raise _over_limit(f"it makes a text of {int(text):,} characters")
        raise _refused(text)

    def value_names(self, special_tokens: Mapping[str, str]) -> frozenset[str]:
        """Returns the names that the templates read beside those that every chat gives them, such
        as "enable_thinking". Empty without a template. Raises what `render` raises."""
        names: set[str] = set()
        for name in self.texts():
            request = json.dumps({"template": name, "asks_names": True})
            names |= set(json.loads(self._text_of(self._answer(request))))
        return frozenset(names.difference(special_tokens, _OWN_NAMES))

    def start(self) -> None:
        """Starts the rendering process ahead of the first chat, without waiting for it."""
        if self and self._process is None:
            try:
                self._process = self._make_process()
                self._process.start()
            except (CheckpointError, ProgramError):
                return  # it is told where a chat is asked for

    def _ask(self, name: str, values: Mapping[str, object]) -> bytes:
        try:
            chat = json.dumps(values, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestError(
                "the messages of a conversation cannot be written as JSON",
                seen=error,
                remedy="Send texts, numbers, lists and objects.",
            ) from error
        max_chars = MAX_ADDED_CHARS + MAX_GROWTH * len(chat)
        request = f'{{"template": {json.dumps(name)}, "max_chars": {max_chars}, "values": {chat}}}'
        return self._answer(request)

    def _answer(self, request: str) -> bytes:
        if self._process is None:
            self._process = self._make_process()
        try:
            return self._process.ask(request.encode(), cpu_s=MAX_RENDER_CPU_S)
        except LimitError as error:
            raise _over_limit(str(error)) from error
        except NotStartedError as error:
            raise NoProcessError("the model's chat template", error) from error
        except ProgramError as error:
            raise _refused(str(error)) from error

    def _make_process(self) -> ConfinedProcess:
        return ConfinedProcess(_CONFINEMENT, json.dumps(self.texts()).encode())

    def _name(self, *, has_tools: bool) -> str:
        """Returns the name of the template to use."""
        texts = self.texts()
        if not texts:
            raise RequestError(
                "this model has no chat template",
                seen=self._where,
                remedy="Give it plain text: `paredown generate`, or /v1/completions of the server.",
            )
        name = TOOL_USE if has_tools and TOOL_USE in texts else DEFAULT
        if name not in texts:
            raise RequestError(
                "this model has no chat template of the name 'default'",
                seen=", ".join(sorted(texts)),
                remedy="Give it plain text: `paredown generate`, or /v1/completions of the server.",
            )
        return name

    def _damaged(self, problem: Exception | str) -> CheckpointError:
        return CheckpointError(
            f"{self._where}: the chat template cannot be read",
            seen=str(problem) or type(problem).__name__,
            remedy="Correct the template; without one the model goes on with plain text "
            "(`paredown generate`, or /v1/completions of the server).",
        )


def _refused(problem: str) -> RequestError:
    return RequestError(
        "the model's chat template refuses these messages",
        seen=problem,
        remedy="Send messages with the roles and the content that the model knows.",
    )


def _over_limit(limit: str) -> TemplateLimitError:
    return TemplateLimitError(
        "the model's chat template was stopped: it came to a limit",
        seen=limit,
        remedy="Send a shorter conversation. A template that stops at short ones too is "
        "damaged, or hostile: use plain text (/v1/completions of the server), or another model.",
    )


def _plain(value: object) -> object:
    """Converts mappings and sequences to types that JSON can write. Raises TypeError for any other
    value."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not a text, a number, a list or an object")


def _read(path: Path, folder: Path) -> str | Exception:
    try:
        text = read_model_file(path, _MAX_TEMPLATE_BYTES, folder).decode()
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        return error


def _as_templates_read(message: Message) -> Message:
    """Drops null fields, which templates would print as None, and stores reasoning under the names
    that templates read."""
    message = {name: value for name, value in message.items() if value is not None}
    reasoning = next((message[name] for name in _REASONING if name in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}
