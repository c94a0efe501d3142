"""ChatTemplates: the chat templates of a checkpoint by their names.

A checkpoint has one template, or several that are chosen by what a chat needs. Nothing here fails
before a chat is asked for: a model whose template is damaged still goes on with plain text.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from paredown.errors import CheckpointError, RequestError
from paredown.files.model_file import read_model_file
from paredown.models.text.chat_template import compile_template

DEFAULT = "default"
# Chosen in place of the default one where tools are given.
TOOL_USE = "tool_use"
TEMPLATE_FILE = "chat_template.jinja"
# Has the other templates of a folder, each as NAME.jinja.
TEMPLATE_FOLDER = "additional_chat_templates"
# What a template, which is a program from the checkpoint, can raise over messages it dislikes.
TEMPLATE_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_MAX_TEMPLATE_BYTES = 1 << 20
# What the reasoning of a message is called; the first is what templates read.
_REASONING = ("reasoning_content", "thinking", "reasoning")
Message = Mapping[str, object]


class ChatTemplates:
    """`source` is what tokenizer_config.json has as `chat_template`: a text, or for several a list
    of {"name", "template"} or an object of texts by their names. An Exception says why it could not
    be read. None is no template. `where` names the file for messages."""

    def __init__(self, source: object, where: str) -> None:
        self._source = source
        self._where = where
        self._compiled: dict[str, jinja2.Template] = {}

    @classmethod
    def of_folder(cls, folder: Path, config: Mapping[str, object]) -> "ChatTemplates":
        """From the folder's template files; where it has none, from its tokenizer_config.json,
        which is `config`."""
        files = {DEFAULT: folder / TEMPLATE_FILE}
        others = sorted((folder / TEMPLATE_FOLDER).glob("*.jinja"))
        files |= {path.name.removesuffix(".jinja"): path for path in others}
        files = {name: path for name, path in files.items() if os.path.lexists(path)}
        if not files:
            return cls(config.get("chat_template"), str(folder / "tokenizer_config.json"))
        return cls({name: _read(path, folder) for name, path in files.items()}, str(folder))

    def __bool__(self) -> bool:
        return self._source is not None

    def texts(self) -> dict[str, str]:
        """The templates by their names; a single one is the default. Raises CheckpointError for
        what is no template."""
        source = self._source
        if source is None:
            return {}
        if isinstance(source, Sequence) and not isinstance(source, str):
            try:
                source = {entry["name"]: entry["template"] for entry in source}
            except (LookupError, TypeError) as error:
                raise self._damaged(error) from error
        named = source if isinstance(source, Mapping) else {DEFAULT: source}
        for text in named.values():
            if isinstance(text, Exception):
                raise self._damaged(text) from text
            if not isinstance(text, str):
                raise self._damaged(TypeError(f"expected a text, not {type(text).__name__}"))
        return dict(named)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] | None,
        special_tokens: Mapping[str, str],
    ) -> str:
        """The conversation up to where its answer starts, as Transformers renders it. Raises
        RequestError where there is no template for it or the template refuses it, CheckpointError
        for a damaged template."""
        template = self._template(has_tools=tools is not None)
        if not messages:
            raise RequestError(
                "a conversation has no messages", seen="none", remedy="Send at least one."
            )
        try:
            return template.render(
                {
                    **special_tokens,
                    "messages": [_as_templates_read(message) for message in messages],
                    "tools": tools,
                    "documents": None,
                    "add_generation_prompt": True,
                }
            )
        except TEMPLATE_ERRORS as error:
            raise RequestError(
                "the model's chat template refuses these messages",
                seen=str(error) or type(error).__name__,
                remedy="Send messages with the roles and the content that the model knows.",
            ) from error

    def _template(self, *, has_tools: bool) -> jinja2.Template:
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
        if name not in self._compiled:
            try:
                self._compiled[name] = compile_template(texts[name])
            except (*TEMPLATE_ERRORS, SyntaxError) as error:
                raise self._damaged(error) from error
        return self._compiled[name]

    def _damaged(self, error: Exception) -> CheckpointError:
        line = f"line {error.lineno}: " if isinstance(error, jinja2.TemplateSyntaxError) else ""
        return CheckpointError(
            f"{self._where}: the chat template cannot be read",
            seen=line + (str(error) or type(error).__name__),
            remedy="Correct the template; without one the model goes on with plain text "
            "(`paredown generate`, or /v1/completions of the server).",
        )


def _read(path: Path, folder: Path) -> str | Exception:
    try:
        text = read_model_file(path, _MAX_TEMPLATE_BYTES, folder).decode()
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        return error


def _as_templates_read(message: Message) -> Message:
    """Without fields that are null, which templates would write out as None, and with reasoning
    under the names that templates read."""
    message = {name: value for name, value in message.items() if value is not None}
    reasoning = next((message[name] for name in _REASONING if name in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}
