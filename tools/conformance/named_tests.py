"""Names of the tests in a file, read without importing it."""

import ast
from pathlib import Path


def named_tests(path: Path) -> list[str]:
    """Returns `test_x` and `TestX::test_y` of a file of tests, in its order. Cases of a test are
    not told apart, since they are known only to whoever imports it."""
    return _names(ast.parse(path.read_text("utf-8")).body)


def _names(body: list[ast.stmt]) -> list[str]:
    names = []
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            names += [f"{node.name}::{name}" for name in _names(node.body)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names += [node.name] if node.name.startswith("test") else []
    return names
