"""The house rules that a machine can check: the floors, what serving imports, sizes."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "paredown"
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CPP_LINES = 400

SERVING = (
    "paredown.serve.app",
    "paredown.engine.llm",
    "paredown.cli.main",
    "paredown.cli.verbs.serve",
)
COMMAND_LINE_HEAVY = ("torch", "transformers", "numpy", "rich", "pydantic", "starlette")


def modules_after(statement: str) -> set[str]:
    """Names of the modules a fresh interpreter holds after `statement`."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(result.stdout.split())


@pytest.mark.parametrize("module", SERVING)
def test_serving_never_imports_torch(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert module in loaded
    assert not loaded & {"torch", "transformers", "matplotlib", "huggingface_hub", "httpx2"}


def test_serving_the_default_model_never_imports_torch() -> None:
    statement = (
        "from paredown.engine.llm import LLM\n"
        "from paredown.engine.sampling.sampling_params import SamplingParams\n"
        "assert LLM(None).generate(['Once'], SamplingParams(max_tokens=2))"
    )
    assert not modules_after(statement) & {
        "torch",
        "transformers",
        "matplotlib",
        "huggingface_hub",
        "httpx2",
    }


def test_help_imports_nothing_heavy() -> None:
    statement = (
        "from paredown.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert not modules_after(statement) & set(COMMAND_LINE_HEAVY)


def python_files() -> list[Path]:
    folders = (SOURCE, ROOT / "tools", ROOT / "benchmarks")
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def test_files_and_functions_stay_readable() -> None:
    """Tests too: who reads a test that failed has not written it."""
    too_long = []
    for path in [*python_files(), *sorted((ROOT / "tests").rglob("*.py"))]:
        text = path.read_text()
        if text.count("\n") > MAX_FILE_LINES:
            too_long.append(f"{path.name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                size = node.end_lineno - node.lineno + 1
                if size > MAX_FUNCTION_LINES:
                    too_long.append(f"{path.name}:{node.lineno} {node.name}: {size} lines")
    for path in (ROOT / "csrc").rglob("*"):
        if path.suffix in {".h", ".cpp"} and path.read_text().count("\n") > MAX_CPP_LINES:
            too_long.append(path.name)
    assert not too_long


def test_a_docstring_says_what_it_is_about() -> None:
    """It begins with a verb or a noun, not with a word that points at the name above it."""
    pointing = {"Of", "Those", "That", "None", "As", "What", "Whose"}
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                words = (ast.get_docstring(node) or "").split()
                if words and words[0].strip(".,:;") in pointing:
                    found.append(f"{path.name}: {' '.join(words[:6])}")
    assert not found


def test_no_room_is_named_utils() -> None:
    forbidden = {"utils", "util", "helpers", "common", "misc", "legacy", "compat"}
    assert not [path for path in python_files() if path.stem in forbidden]


def test_importing_the_package_imports_nothing_else() -> None:
    assert not {name for name in modules_after("import paredown") if name.startswith("paredown.")}
