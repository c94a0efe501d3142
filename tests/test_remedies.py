"""What an error tells a user to do can be done: options, verbs, recipes and pages that remedies
name are there."""

import argparse
import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from paredown.cli.main import VERBS
from paredown.compress.recipe_names import find_recipe
from paredown.errors import ParedownError
from paredown.installation import EXTRAS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "paredown"
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
QUOTED = re.compile(r"`([^`]*)`")
PAGE = re.compile(r"\bdocs/[\w./]+")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"].keys()
RECIPE = re.compile(r"\b(?:gptq-|awq-|hqq-|aqlm-)?(?:int\d|w\da8|fp8|llm-int8|\dx8)[\w-]*")
# Options of other programs, and recipes that are patterns of names.
OTHERS = {"--apply_chat_template", "--gen_kwargs", "--device"}


class Parser(argparse.ArgumentParser):
    """Takes what a verb adds."""


def options_of(verb: str) -> set[str]:
    parser = Parser(prog=verb)
    importlib.import_module(f"paredown.cli.verbs.{verb}").add_arguments(parser)
    return {option for action in parser._actions for option in action.option_strings}


OPTIONS = {verb: options_of(verb) for verb in VERBS}


def text_of(node: ast.expr, constants: dict[str, str]) -> str:
    """What is written in the source: names of texts of the module are put in, all else that is only
    known later is "…"."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return constants.get(node.id, "…")
    if isinstance(node, ast.BinOp):
        return text_of(node.left, constants) + text_of(node.right, constants)
    if isinstance(node, ast.IfExp):
        return f"{text_of(node.body, constants)} / {text_of(node.orelse, constants)}"
    if isinstance(node, ast.JoinedStr):
        return "".join(
            text_of(one.value if isinstance(one, ast.FormattedValue) else one, constants)
            for one in node.values
        )
    return "…"


def remedies() -> Iterator[tuple[str, str]]:
    """The place and the text of each."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        constants = {
            one.targets[0].id: text_of(one.value, {})
            for one in tree.body
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            keywords = node.keywords if isinstance(node, ast.Call) else []
            for keyword in keywords:
                if keyword.arg == "remedy":
                    place = f"{path.relative_to(SOURCE)}:{keyword.value.lineno}"
                    yield place, text_of(keyword.value, constants)


REMEDIES = list(remedies())


def faults(text: str) -> list[str]:
    """What a remedy names and nothing has."""
    found = [page for page in PAGE.findall(text) if not (ROOT / page.rstrip(".")).exists()]
    everywhere = set().union(*OPTIONS.values())
    found += [one for one in OPTION.findall(text) if one not in everywhere | OTHERS]
    for quoted in QUOTED.findall(text):
        words = quoted.split()
        if words[:1] == ["paredown"] and len(words) > 1:
            verb = words[1]
            if verb not in VERBS:
                found.append(quoted)
            else:
                found += [one for one in OPTION.findall(quoted) if one not in OPTIONS[verb]]
    for recipe in RECIPE.findall(text):
        if not is_format_or_recipe(recipe.rstrip("-")):
            found.append(recipe)
    found += [one for one in re.findall(r"paredown\[(\w+)\]", text) if one not in EXTRAS]
    return found


def is_format_or_recipe(name: str) -> bool:
    grid = re.fullmatch(r"(?:int\d|fp8_e\dm\d)(?:-(?:token|tensor|g\d+))?(?:-asym)?", name)
    if grid is not None:
        return True
    try:
        find_recipe(name)
    except ParedownError:
        return False
    return True


@pytest.mark.parametrize(("place", "text"), REMEDIES, ids=[place for place, _ in REMEDIES])
def test_a_remedy_names_what_is_there(place: str, text: str) -> None:
    assert text.strip(), "an error says what to do"
    assert not faults(text)


def test_there_are_remedies_in_every_room() -> None:
    rooms = {place.split("/")[0] for place, _ in REMEDIES}
    assert {"cli", "compress", "engine", "executors", "formats", "models", "serve"} <= rooms
    assert len(REMEDIES) > 300


@pytest.mark.parametrize(
    "text",
    [
        "Use --fast.",
        "Run `paredown distil`.",
        "Use `paredown generate --kv-memory 1GB`.",
        "As docs/tensors.md shows.",
        "Give gptq-int4-g7.",
        "pip install 'paredown[gpu]'",
    ],
)
def test_what_is_not_there_is_found(text: str) -> None:
    assert faults(text)


@pytest.mark.parametrize(
    ("option", "verbs"),
    [
        ("--executor", {"generate", "chat", "serve", "bench"}),
        ("--kv-memory", {"serve", "bench"}),
        ("--pages", {"serve", "bench"}),
        ("--no-verify", {"compress", "convert"}),
    ],
)
def test_verbs_that_remedies_name_beside_an_option_have_it(option: str, verbs: set[str]) -> None:
    assert verbs <= {verb for verb, options in OPTIONS.items() if option in options}
