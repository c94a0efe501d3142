"""Runs a checkpoint's chat templates as the program of a ConfinedProcess."""

import json
from collections.abc import Callable
from typing import Any

import jinja2

from paredown.models.text.chat_template import compile_template, read_names
from paredown.models.text.template_answer import AnswerKind, write_answer

# The errors that a template may raise over a chat.
TEMPLATE_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
# Limits the error text of a template, which may have any length.
MAX_TOLD_CHARS = 500


def make_renderer(setup: bytes) -> Callable[[bytes], bytes]:
    """Returns the renderer. `setup` holds the template sources by name."""
    sources: dict[str, str] = json.loads(setup)
    compiled: dict[str, jinja2.Template | bytes] = {}

    def render(request: bytes) -> bytes:
        asked = json.loads(request)
        name = asked["template"]
        if "asks_names" in asked:
            return _names(sources[name])
        if name not in compiled:
            compiled[name] = _compile(sources[name])
        template = compiled[name]
        if isinstance(template, bytes):
            return template
        return _render(template, asked["values"], asked["max_chars"])

    return render


def _compile(source: str) -> jinja2.Template | bytes:
    """Returns the template, or the answer that says what is wrong with it."""
    try:
        return compile_template(source)
    except (*TEMPLATE_ERRORS, SyntaxError) as error:
        line = f"line {error.lineno}: " if isinstance(error, jinja2.TemplateSyntaxError) else ""
        return write_answer(AnswerKind.DAMAGED, line + _told(error))


def _names(source: str) -> bytes:
    """Returns the answer with the names that a template reads and does not set, a list as JSON."""
    try:
        return write_answer(AnswerKind.TEXT, json.dumps(sorted(read_names(source))))
    except (*TEMPLATE_ERRORS, SyntaxError) as error:
        return write_answer(AnswerKind.DAMAGED, _told(error))


def _render(template: jinja2.Template, values: dict[str, Any], max_chars: int) -> bytes:
    try:
        text = template.render(values)
    except TEMPLATE_ERRORS as error:
        return write_answer(AnswerKind.REFUSED, _told(error))
    if len(text) > max_chars:
        return write_answer(AnswerKind.TOO_LONG, str(len(text)))
    return write_answer(AnswerKind.TEXT, text)


def _told(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:MAX_TOLD_CHARS]
