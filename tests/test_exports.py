"""What `import paredown` offers: each name is there, typed, and imported when it is first used."""

import ast
import builtins
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import paredown

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "paredown"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def typed_imports() -> dict[str, tuple[str, str]]:
    """The names that type checkers see: the module of each, and what it is called there."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            found[alias.asname or alias.name] = (node.module, alias.name)
    return found


def test_type_checkers_see_the_names_that_are_there() -> None:
    typed = typed_imports()
    assert sorted(typed) == sorted(paredown.__all__) == dir(paredown)
    for name, (module, attribute) in typed.items():
        there = getattr(importlib.import_module(module), attribute)
        assert there is not None
        assert getattr(paredown, name) is there
    assert sorted(paredown._MODULES) == dir(paredown)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        _ = paredown.quantise


def test_a_star_gives_all_of_them() -> None:
    names: dict[str, object] = {}
    exec("from paredown import *", names)
    assert set(paredown.__all__) <= set(names)


def value_types(annotation: object) -> Iterator[type]:
    """Our dataclasses that an annotation names."""
    if inspect.isclass(annotation) and dataclasses.is_dataclass(annotation):
        yield annotation
    for part in typing.get_args(annotation):
        yield from value_types(part)


def test_what_is_given_to_functions_can_be_made_from_the_top() -> None:
    functions = [one for name in paredown.__all__ if inspect.isfunction(one := export(name))]
    hints = [typing.get_type_hints(one) for one in (*functions, paredown.LLM.__init__)]
    given = [kind for one in hints for name, kind in one.items() if name != "return"]
    pending = [kind for annotation in given for kind in value_types(annotation)]
    exported = {export(name) for name in paredown.__all__ if inspect.isclass(export(name))}
    found: set[type] = set()
    while pending:
        kind = pending.pop()
        # A checkpoint is opened, not put together.
        if kind not in found and kind is not paredown.Checkpoint:
            found.add(kind)
            for annotation in typing.get_type_hints(kind).values():
                pending += value_types(annotation)
    assert found <= exported
    assert {paredown.RunOptions, paredown.WeightSpec, paredown.Recipe} <= found


def export(name: str) -> object:
    return getattr(paredown, name)


SCRIPT = """
from pathlib import Path
from typing import assert_type

import paredown
from paredown import (
    LLM, AsyncLLM, AttentionSinks, BeamCompletion, BeamSearchParams, Checkpoint,
    CompressedCheckpoint, Completion, ConvertedCheckpoint, GPTQ, FORMATS, OptimizeResult,
    QuantizeStep, Recipe, SamplingParams, ScheduleConfig, SpeculationConfig, ThreadPlan,
    VerifyConfig, compress_checkpoint, convert_checkpoint, optimize_checkpoint,
)

llm = LLM(
    num_threads=ThreadPlan.resolve(1),
    config=ScheduleConfig(),
    speculation=SpeculationConfig(kind="ngram"),
    sinks=AttentionSinks(num_sink_tokens=4, window=1020),
)
assert_type(llm, LLM)
assert_type(llm.generate("Once", SamplingParams(max_tokens=5)), list[Completion])
assert_type(llm.beam_search("Once", BeamSearchParams()), list[BeamCompletion])
assert_type(AsyncLLM(llm), AsyncLLM)
assert_type(paredown.Checkpoint.open(Path("m")), Checkpoint)
step = QuantizeStep(quantizer=GPTQ(), spec=FORMATS["int8"])
made = compress_checkpoint(
    "m", "out", Recipe(name="mine", steps=(step,)), verify=VerifyConfig(num_tokens=64)
)
assert_type(made, CompressedCheckpoint)
assert_type(made.not_verified, str | None)
assert_type(convert_checkpoint(None, Path("out"), "gptq"), ConvertedCheckpoint)
assert_type(optimize_checkpoint("m"), OptimizeResult)
try:
    pass
except paredown.QueueFullError as error:
    assert_type(error.remedy, str)

LLM(model=3)  # wrong: no model
SamplingParams(temprature=0.5)  # wrong: no such field
paredown.quantise  # wrong: no such name
"""


def test_a_users_type_checker_knows_every_type(tmp_path: Path) -> None:
    """Strictly, and it finds what is wrong."""
    assert (PACKAGE / "py.typed").is_file()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = ["-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(script)]
    found = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert not found.stderr
    told = [int(line) for line in re.findall(r"script\.py:(\d+): error", found.stdout)]
    lines = SCRIPT.splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if "# wrong" in line]
    assert told == wrong, found.stdout


def snippets(page: Path) -> str:
    """The Python of a page, one piece after the other as a reader types them."""
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))


def test_pages_import_from_the_top_what_is_there() -> None:
    """Or from a room that offers names of its own."""
    imported: dict[str, set[str]] = {"paredown": set(), "paredown.retrieve": set()}
    for page in PAGES:
        for node in ast.walk(ast.parse(snippets(page))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paredown"):
                assert node.module in imported, page.name
                imported[node.module] |= {alias.name for alias in node.names}
    assert "LLM" in imported["paredown"]
    assert "DenseIndex" in imported["paredown.retrieve"]
    for module, names in imported.items():
        assert names <= set(importlib.import_module(module).__all__)


def test_pages_use_no_name_that_they_do_not_import() -> None:
    for page in PAGES:
        code = snippets(page)
        known = set(dir(builtins))
        used = set()
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                known |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                known.add(node.name)
            elif isinstance(node, ast.arg):
                known.add(node.arg)
            elif isinstance(node, ast.Name):
                (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
        assert used <= known, f"{page.name}: {sorted(used - known)}"
