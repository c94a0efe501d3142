"""Verbs where the terminal is not UTF-8: nothing fails, and nothing else changes."""

import json
import os
import subprocess
import sys

import pytest

SMILE = "\U0001f600 \u00e9"
PLACES = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
]
SHORT = ("--temperature", "0", "--max-tokens", "3", "--threads", "1")


def run(place: dict[str, str], *words: str, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "paredown.cli.main", *words],
        input=stdin.encode(place.get("PYTHONIOENCODING", "utf-8"), "replace"),
        capture_output=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUTF8"} | place,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("place", PLACES)
def test_a_prompt_and_its_answer(place: dict[str, str]) -> None:
    shown = run(place, "generate", SMILE, "--echo", *SHORT).stdout
    assert shown.startswith("? é".encode("latin-1") if "latin-1" in place.values() else b"? ?")
    told = json.loads(run(place, "generate", SMILE, "--json", *SHORT).stdout)
    assert told["completions"][0]["prompt"] == SMILE


@pytest.mark.parametrize("place", PLACES)
def test_a_conversation(place: dict[str, str]) -> None:
    shown = run(place, "chat", "--json", "--system", SMILE, *SHORT, stdin="Hello\n").stdout
    assert json.loads(shown)["messages"][0]["content"] == SMILE
    assert run(place, "chat", *SHORT, stdin="Hello\n").stdout.endswith(b"\n")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "--symbolic"),
        ("inspect", "--symbolic", "--json"),
        ("inspect", "--json"),
        ("inspect",),
        ("eval", "--tokens", "2000", "--threads", "1"),
        ("compress", "--help"),
    ],
)
def test_tables_and_progress(place: dict[str, str], words: tuple[str, ...]) -> None:
    shown = run(place, *words).stdout
    if "--json" in words:
        json.loads(shown)


def test_text_from_a_pipe_where_only_ascii_is_expected() -> None:
    place = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    told = json.loads(run(place, "generate", "--json", *SHORT, stdin=SMILE).stdout)
    assert told["completions"][0]["prompt"] == SMILE
