"""Every command that a page or a verb's help shows is understood."""

import argparse
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from paredown.cli.main import VERBS
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.serve.schema.completion import read_completion

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\.venv/bin/)?paredown (?P<verb>\w+)(?P<rest>.*)$", re.MULTILINE)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Verbs and the words behind them, without comments and what follows in the shell."""
    joined = re.sub(r"\\\n\s*", "", text)
    found = []
    for one in COMMAND.finditer(joined):
        words = shlex.split(re.split(r"  +| &$| [|>] ", one["rest"])[0], comments=False)
        found.append((one["verb"], words))
    return found


def shown() -> list[tuple[str, str, list[str]]]:
    found = []
    for page in PAGES:
        for block in FENCED.findall(page.read_text()):
            found += [(page.name, *command) for command in commands(block)]
    for verb in VERBS:
        examples = importlib.import_module(f"paredown.cli.verbs.{verb}").EXAMPLES
        lines = "\n".join(line.strip() for line in examples.splitlines())
        found += [(f"{verb} --help", *command) for command in commands(lines)]
    return found


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise AssertionError(message)


def understand(verb: str, words: list[str]) -> None:
    parser = Parser(prog=verb, allow_abbrev=False)
    importlib.import_module(f"paredown.cli.verbs.{verb}").add_arguments(parser)
    parser.parse_args(words)


@pytest.mark.parametrize(
    ("where", "verb", "words"),
    shown(),
    ids=[f"{where}: {verb} {' '.join(words)}" for where, verb, words in shown()],
)
def test_a_command_is_understood(where: str, verb: str, words: list[str]) -> None:
    understand(verb, words)


def test_commands_are_shown_of_every_verb() -> None:
    assert {verb for _, verb, _ in shown()} == set(VERBS)


def test_an_option_that_is_not_there_is_found() -> None:
    with pytest.raises(AssertionError, match="unrecognized"):
        understand("serve", ["small", "--speed", "9"])


def test_the_request_of_the_quick_start_is_a_completion() -> None:
    (body,) = re.findall(r"-d '(.*)'", (ROOT / "README.md").read_text())
    asked, params = read_completion(SamplingDefaults(), json.loads(body))
    assert (asked.prompts, params.max_tokens) == (["Once upon a time"], 20)
