"""Chat templates: Jinja in a sandbox, with the settings and names that Transformers gives them."""

import json
from collections.abc import Callable
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


def compile_template(source: object) -> jinja2.Template:
    """Compiles a template from a checkpoint, which is not trusted. Raises jinja2.TemplateError, or
    TypeError for what is not a text."""
    if not isinstance(source, str):
        raise TypeError(f"expected a text, not {type(source).__name__}")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    environment.globals["namespace"] = TemplateNamespace
    return environment.from_string(source)


class GenerationTag(Extension):
    """`{% generation %}` marks what the model has said, for those who train on it. Its body is
    written as it stands; what is set in it is not seen behind it."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 asks for a set here

    def parse(self, parser: Parser) -> CallBlock:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block = CallBlock(self.call_method("_body"), [], [], body)
        block.set_lineno(line)
        return block

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateNamespace(Namespace):
    """`namespace(...)` whose attributes do not begin with an underscore: what Python itself looks
    up there would lead out of the sandbox."""

    def __init__(*args: object, **named: object) -> None:  # `self` is a name that templates may use
        self, *rest = args
        assert isinstance(self, TemplateNamespace)
        values = dict(*rest, **named)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace takes no attribute {name!r}")


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which a prompt must not have."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _now(form: str) -> str:
    return datetime.now().strftime(form)
