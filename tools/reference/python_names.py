"""What `paredown` exports: where it lies, how it is called, what it holds."""

import ast
import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Iterator

import paredown
from paredown.executors.run_options import RunOptions
from tools.reference.page import docstring, first_sentence, table, wrapped

# A table of a few hundred formats would say less than its page.
_TABLES = {"FORMATS": "Every format of linear layers by its name, as recipes name them."}
# What AsyncLLM asks of LLM.
_INTERNAL = ("lend", "prepare", "take_back")
_PLAIN = re.compile(r"\b(?:[a-z_]\w*\.)+([A-Za-z_]\w*)")


def blocks() -> dict[str, str]:
    """Functions, classes by kind, and errors."""
    kinds: dict[str, list[str]] = {"functions": [], "classes": [], "configurations": []}
    errors = []
    for name in sorted(paredown.__all__, key=str.lower):
        value = getattr(paredown, name)
        if inspect.isclass(value) and issubclass(value, Exception):
            errors.append((f"`{name}`", f"`{value.__bases__[0].__name__}`", _about(name, value)))
        elif inspect.isclass(value) and dataclasses.is_dataclass(value):
            kinds["configurations"].append(_dataclass(name, value))
        elif inspect.isclass(value):
            kinds["classes"].append(_class(name, value))
        elif callable(value):
            kinds["functions"].append(_function(name, value))
        else:
            kinds["functions"].append(_head(name, value, _TABLES[name]))
    return {name: "\n\n".join(parts) for name, parts in kinds.items()} | {
        "errors": table(("error", "is a", "meaning"), errors),
        "run options": _fields(RunOptions),
    }


def _head(name: str, value: object, about: str) -> str:
    lies = importlib.import_module(paredown._MODULES[name]).__name__
    return f"### {name}\n" + wrapped(f"`{lies}`. {about}".strip())


def _about(name: str, value: object) -> str:
    return first_sentence(inspect.getdoc(value))


def _function(name: str, value: object) -> str:
    return f"{_head(name, value, _about(name, value))}\n\n```text\n{_signature(name, value)}\n```"


def _class(name: str, value: type) -> str:
    lines = [_signature(name, value)]
    lines += [
        _signature(method, function, keyword=_keyword(function))
        + "\n"
        + wrapped(f"    # {_about(method, function)}", width=96, indent="    # ")
        for method, function in _methods(value)
        if method not in _INTERNAL
    ]
    code = "\n\n".join(lines)
    return f"{_head(name, value, _about(name, value))}\n\n```text\n{code}\n```"


def _dataclass(name: str, value: type) -> str:
    parts = [_head(name, value, ""), *docstring(value)]
    if dataclasses.fields(value):
        parts.append(_fields(value))
    made = [method for method, member in vars(value).items() if isinstance(member, classmethod)]
    for method in made:
        signature = _signature(f"{name}.{method}", getattr(value, method), keyword="")
        parts.append(f"```text\n{signature}\n```")
    return "\n\n".join(parts)


def _fields(value: type) -> str:
    rows = [
        (f"`{field.name}`", f"`{type_text(field.type)}`", _default(field))
        for field in dataclasses.fields(value)
        if not field.name.startswith("_")
    ]
    return table(("field", "type", "default"), rows)


def _default(field: "dataclasses.Field[object]") -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{_shown(field.default)}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{_shown(field.default_factory())}`"
    return "required"


def _shown(value: object) -> str:
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}()"
    return repr(value)


def _methods(value: type) -> Iterator[tuple[str, object]]:
    """Public functions and class methods, in the order of the source."""
    for name, member in vars(value).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def _keyword(function: object) -> str:
    return "async def" if inspect.iscoroutinefunction(function) else "def"


def _signature(name: str, function: object, keyword: str = "") -> str:
    """As the source writes it, without the modules of types, in one line or one for each part."""
    assert callable(function)
    signature = inspect.signature(function)
    parts, was_keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not was_keyword_only:
            was_keyword_only = True
            parts.append("*")
        parts.append(_parameter(parameter))
    returned = signature.return_annotation
    is_told = returned not in (inspect.Signature.empty, None)
    arrow = f" -> {type_text(returned)}" if is_told else ""
    start = f"{keyword} {name}" if keyword else name
    whole = f"{start}({', '.join(parts)}){arrow}"
    if len(whole) <= 96:
        return whole
    return f"{start}(\n    " + ",\n    ".join(parts) + f",\n){arrow}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
    name = stars + parameter.name
    kind = (
        "" if parameter.annotation is inspect.Parameter.empty else type_text(parameter.annotation)
    )
    kind = f": {kind}" if kind else ""
    if parameter.default is inspect.Parameter.empty:
        return name + kind
    return f"{name}{kind} = {_shown(parameter.default)}"


def type_text(annotation: object) -> str:
    """A type as people write it."""
    if typing.get_origin(annotation) is typing.Unpack:
        text = f"Unpack[{typing.get_args(annotation)[0].__name__}]"
    elif isinstance(annotation, str):
        text = ast.unparse(ast.parse(annotation, mode="eval").body)
    elif isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        text = annotation.__name__
    else:
        text = str(annotation)
    plain = _PLAIN.sub(r"\1", text).replace("NoneType", "None")
    return re.sub(r"^Optional\[(.*)\]$", r"\1 | None", plain)
