"""Options that hold answers to a form become grammars."""

import argparse
from pathlib import Path

import pytest

from paredown.cli.main import main
from paredown.cli.options.structure import add_structure_arguments, answer_grammar
from paredown.engine.grammar.grammar import Grammar, GrammarError
from paredown.errors import ConfigError


def parse(*words: str) -> Grammar | None:
    parser = argparse.ArgumentParser()
    add_structure_arguments(parser)
    return answer_grammar(parser.parse_args(words))


def test_each_option_is_a_kind_of_grammar(tmp_path: Path) -> None:
    schema, rules = tmp_path / "schema.json", tmp_path / "rules.lark"
    schema.write_text('{"type": "null"}')
    rules.write_text('start: "東"')
    assert parse() is None
    assert parse("--regex", "a+") == Grammar(kind="regex", text="a+")
    assert parse("--choice", "a", "--choice", "b c") == Grammar.choice(["a", "b c"])
    assert parse("--json-schema", str(schema)) == Grammar.json_schema({"type": "null"})
    assert parse("--grammar", str(rules)) == Grammar(kind="lark", text='start: "東"')


def test_files_that_cannot_be_read_and_long_ones_are_refused(tmp_path: Path) -> None:
    for name, data in (("absent", None), ("bytes", b"\xff"), ("long", b"a" * 200_000)):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(ConfigError, match="cannot be read"):
            parse("--json-schema", str(path))
    with pytest.raises(GrammarError, match="--regex: the grammar is too long"):
        parse("--regex", "a" * 200_000)


def test_two_forms_are_refused() -> None:
    with pytest.raises(SystemExit):
        parse("--regex", "a", "--choice", "b")


def test_an_answer_is_one_of_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--choice", "yes", "--choice", "no", "--threads", "1"]
    assert main(["generate", "Is the sea blue?", *options]) == 0
    assert capsys.readouterr().out.strip() in ("yes", "no")


def test_a_keyword_that_is_not_kept_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"uniqueItems": true}')
    options = ["--json-schema", str(schema), "--threads", "1"]
    assert main(["generate", "A list: ", *options]) == 2
    assert "--json-schema: the grammar cannot be used (saw: uniqueItems" in capsys.readouterr().err
