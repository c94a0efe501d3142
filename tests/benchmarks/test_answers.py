"""Answers of two builds: what differs is found, and what may differ is not looked at."""

import json
from pathlib import Path

import pytest

from benchmarks import answers as driver
from benchmarks.answers import (
    EXIT_BAD_INPUT,
    EXIT_DIFFERENT,
    AnswerError,
    answers,
    differences,
    main,
)
from benchmarks.build import Build

# It writes what the command does, with one weight, one figure and one token of its own.
COMMAND = """
import json, pathlib, sys

WEIGHT, FIGURE, TOKEN, GOLDEN, SENTENCE = {values}
verb, *words = sys.argv[1:]
if verb == "generate":
    print(json.dumps({{"completions": [{{"token_ids": [TOKEN]}}], "seconds": SENTENCE}}))
elif "no-recipe" in words:
    raise SystemExit("no such recipe")
else:
    out = pathlib.Path(words[words.index("-o") + 1])
    folder = out.parent if out.suffix else out
    folder.mkdir(exist_ok=True)
    (out if out.suffix else out / "model.safetensors").write_text(WEIGHT)
    verification = {{
        "compressed": {{"name": SENTENCE, "perplexity": FIGURE}},
        "notes": [SENTENCE],
        "versions": {{"paredown": SENTENCE}},
        "fingerprint": {{"golden": {{"sha256": GOLDEN, "arithmetic": {{"core": SENTENCE}}}}}},
        "sha256": SENTENCE,
    }}
    (out.with_name(out.name + ".verification.json") if out.suffix
        else out / "verification.json").write_text(json.dumps(verification))
"""
VALUES = {"weight": "w", "figure": 1.5, "token": 7, "golden": "g", "sentence": "s"}


def fake_build(folder: Path, **changes: object) -> Build:
    package = folder / "paredown" / "cli"
    package.mkdir(parents=True)
    for place in (package.parent, package):
        (place / "__init__.py").write_text("")
    values = tuple((VALUES | changes).values())
    (package / "main.py").write_text(COMMAND.format(values=values))
    return Build(tree=folder, packages=folder)


def answers_of(folder: Path, recipes: tuple[str, ...] = ("bf16",), **changes: object) -> dict:
    (folder / "out").mkdir(parents=True)
    return answers(fake_build(folder / "build", **changes), folder / "out", recipes)


GGUF = [f"bf16.gguf-{kind}.gguf" for kind in ("f16", "q4_0", "q8_0")]
WEIGHTS = {"bf16/model.safetensors", *GGUF}
VERIFICATIONS = {"bf16/verification.json", *(f"{name}.verification.json" for name in GGUF)}
TOKENS = {f"{name}.generated.json" for name in ("bf16", *GGUF)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"sentence": "another"}, set()),
        ({"weight": "x"}, WEIGHTS),
        ({"figure": 1.25}, VERIFICATIONS),
        ({"golden": "h"}, VERIFICATIONS),
        ({"token": 8}, TOKENS),
    ],
)
def test_weights_figures_and_tokens_are_compared_and_sentences_are_not(
    tmp_path: Path, changes: dict[str, object], expected: set[str]
) -> None:
    one, two = answers_of(tmp_path / "a"), answers_of(tmp_path / "b", **changes)
    assert one.keys() == WEIGHTS | VERIFICATIONS | TOKENS
    assert set(differences(one, two)) == expected


def test_what_only_one_build_writes_differs(tmp_path: Path) -> None:
    one, two = answers_of(tmp_path / "a"), answers_of(tmp_path / "b", ("bf16", "int8"))
    assert differences(one, two) == [
        "int8.generated.json",
        "int8/model.safetensors",
        "int8/verification.json",
    ]


def test_a_command_that_fails_is_named_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(AnswerError, match=r"--recipe no-recipe .*saw: no such recipe"):
        answers_of(tmp_path, ("no-recipe",))


def test_the_exit_status_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builds = {"a": fake_build(tmp_path / "a"), "b": fake_build(tmp_path / "b", weight="x")}
    monkeypatch.setattr(driver, "commit_id", lambda ref: ref)
    monkeypatch.setattr(driver, "build_of", lambda commit, folder: builds[commit])
    out = tmp_path / "out.json"
    words = ["answers", "a", "--folder", str(tmp_path / "work"), "--recipes", "int8"]
    monkeypatch.setattr("sys.argv", [*words, "--after", "b", "--json", str(out)])
    assert main() == EXIT_DIFFERENT
    assert "3 answers, 1 of them differ\ndiffers: int8/model.safetensors" in capsys.readouterr().out
    assert [len(one) for one in json.loads(out.read_text())] == [3, 3]
    assert list((tmp_path / "work").iterdir()) == []
    monkeypatch.setattr("sys.argv", [*words, "--after", "a"])
    assert main() == 0
    monkeypatch.setattr("sys.argv", [*words, "int8"])
    assert main() == EXIT_BAD_INPUT
    assert "a recipe is there twice" in capsys.readouterr().err
