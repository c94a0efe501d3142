"""The guide's commands, requests and Python for the built-in model run as they are pasted."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paredown.cli.main import main

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guide"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Verbs that take minutes, or do not end.
LONG = {"bench", "optimize", "serve"}


def blocks(page: str, language: str = "") -> list[str]:
    """The code of a page that is fenced as that language."""
    found = FENCED.findall((GUIDE / page).read_text("utf-8"))
    return [code for name, code in found if name == language]


def built_in_commands() -> list[list[str]]:
    """Commands that name neither a model nor a file of the reader."""
    found = []
    for page in sorted(GUIDE.glob("*.md")):
        for block in blocks(page.name):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                command = line.removeprefix(".venv/bin/")
                if not command.startswith("paredown "):
                    continue
                words = shlex.split(command, comments=True)[1:]
                if is_built_in(words):
                    found.append(words)
    return found


def is_built_in(words: list[str]) -> bool:
    verb, *rest = words
    names_a_model = "--model" in rest or (bool(rest) and not rest[0].startswith("-"))
    if verb == "generate":
        names_a_model = "--model" in rest
    return verb not in LONG and not names_a_model and "--sweep" not in rest


COMMANDS = built_in_commands()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_on_the_built_in_model_runs(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0


def test_the_commands_are_of_several_verbs() -> None:
    assert {"generate", "compress", "eval", "simulate", "doctor"} <= {one[0] for one in COMMANDS}


def test_the_examples_of_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks("python.md", "python")), "python.md", "exec"), {})
    assert (tmp_path / "small.gguf").is_file()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of the built-in model."""
    command = [sys.executable, "-m", "paredown.cli.main", "serve", "--port", "0", "--json"]
    with subprocess.Popen([*command, "--threads", "1"], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


def test_the_examples_of_structured_output_run() -> None:
    found: dict[str, object] = {}
    exec(compile("\n".join(blocks("structured_output.md", "python")), "page", "exec"), found)
    assert found["answer"].finish_reason == "stop"  # type: ignore[attr-defined]


def curl_lines() -> list[str]:
    found = []
    for page in ("serve.md", "structured_output.md", "responses.md", "messages.md"):
        block = next(one for one in blocks(page) if "curl" in one)
        lines = re.sub(r"\\\n\s*", "", block).replace("\n         ", " ").splitlines()
        found += [line for line in lines if line]
    return found


@pytest.mark.parametrize("line", curl_lines())
def test_a_request_of_the_page_is_answered(line: str, url: str) -> None:
    line = line.replace("localhost:8000", url.removeprefix("http://"))
    words = shlex.split(line)
    done = subprocess.run([*words, "--fail", "--silent"], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert done.stdout


@pytest.mark.parametrize("page", ["serve.md", "responses.md", "messages.md"])
def test_the_client_of_the_page_gets_an_answer(
    page: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    example = "\n".join(blocks(page, "py"))
    exec(compile(example.replace("http://localhost:8000", url), page, "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_examples_of_retrieval_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks("retrieve.md", "python")), "retrieve.md", "exec"), {})
    assert (tmp_path / "vectors.npy").is_file()
