"""Chat templates: Jinja in a sandbox, with the settings and names that Transformers gives them.

A template is a program that came with a model. `compile_template` runs none of it; rendering
belongs in a process that can be stopped (models/text/confined_process.py).
"""

import json
from collections.abc import Callable
from datetime import datetime

import jinja2
from jinja2 import meta, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


def compile_template(source: object) -> jinja2.Template:
    """Compiles an untrusted template from a checkpoint. Raises jinja2.TemplateError, or TypeError
    for anything but a text."""
    if not isinstance(source, str):
        raise TypeError(f"expected a text, not {type(source).__name__}")
    return _environment().from_string(source)


def read_names(source: str) -> set[str]:
    """Returns the names that a template reads from its values, whether or not it tests them first.
    Raises jinja2.TemplateError."""
    environment = _environment()
    return meta.find_undeclared_variables(environment.parse(source))


def _environment() -> "TemplateEnvironment":
    environment = TemplateEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, loopcontrols],
        optimized=False,
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    environment.globals["namespace"] = TemplateNamespace
    return environment


class UnfoldedCode(CodeGenerator):
    """Generates a template's code without evaluating any of it, so that `{{ 9 ** (9 ** 9) }}` costs
    nothing until it is rendered. Jinja folds constants in output even with its optimizer off."""

    def _output_child_to_const(
        self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo
    ) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_EvalContextModifier(  # noqa: N802  # Jinja's own name
        self, node: nodes.EvalContextModifier, frame: Frame
    ) -> None:
        for option in node.options:
            if not isinstance(option.value, nodes.Const):
                self.fail("a template takes no option that has to be computed", node.lineno)
        super().visit_EvalContextModifier(node, frame)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox without constant folding."""

    code_generator_class = UnfoldedCode


class GenerationTag(Extension):
    """Supports `{% generation %}`, which marks the model's own words for training. Its body is
    rendered as it stands; variables set inside are not visible after it."""

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
    """A `namespace(...)` without attributes that begin with an underscore. Python itself would look
    these up, which leads out of the sandbox."""

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
    """Serializes to JSON without escaping HTML, which Jinja's own filter does and a prompt must not
    have."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _now(form: str) -> str:
    return datetime.now().strftime(form)
