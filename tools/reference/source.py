"""The package's source as syntax trees, for what is written in calls and literals alone."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import paredown

PACKAGE = Path(paredown.__file__).parent


def modules(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    """The name and the tree of each module below the rooms."""
    for room in rooms:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            yield ".".join(parts), ast.parse(path.read_text("utf-8"))


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Calls of what is called `name`, with or without the module before it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) == name:
            yield node


def called(call: ast.Call) -> str:
    target = call.func
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""


def constant(node: ast.AST | None, module: str) -> object:
    """The value of a literal, or of a name that the module has; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return getattr(importlib.import_module(module), node.id, None)
    return None


def template(node: ast.AST, module: str) -> str:
    """A text as it is written, with constants filled in and `...` for the rest."""
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part, module) for part in node.values)
    value = constant(node.value if isinstance(node, ast.FormattedValue) else node, module)
    return "..." if value is None else str(value)


def literal_keys(function: Callable[..., object]) -> list[str]:
    """Keys of the dicts that a function writes out, without those of dicts in them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found: list[str] = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Dict):
            keys = (key.value for key in node.keys if isinstance(key, ast.Constant))
            found += [str(key) for key in keys if key not in found]
            pending += [value for key, value in zip(node.keys, node.values, strict=True) if not key]
        else:
            pending += ast.iter_child_nodes(node)
    return found
