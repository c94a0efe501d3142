"""Options that hold answers to a form."""

import argparse
from pathlib import Path

from paredown.engine.grammar.grammar import MAX_TEXT_BYTES, Grammar
from paredown.errors import ConfigError
from paredown.files.named_file import read_named_file


def add_structure_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "the form of an answer (docs/guide/structured_output.md)"
    ).add_mutually_exclusive_group()
    group.add_argument(
        "--json-schema", type=Path, help="JSON that this file's schema allows", metavar="FILE"
    )
    group.add_argument("--regex", help="text that the regular expression matches", metavar="REGEX")
    group.add_argument(
        "--choice",
        action="append",
        help="one of the given texts; may be given again",
        metavar="TEXT",
    )
    group.add_argument(
        "--grammar", type=Path, help="text of the Lark or GBNF grammar in a file", metavar="FILE"
    )


def answer_grammar(args: argparse.Namespace) -> Grammar | None:
    """Returns the form that the options ask for. Raises GrammarError, and ConfigError for a file
    that cannot be read."""
    if args.json_schema is not None:
        return Grammar.json_schema(_read(args.json_schema), origin="--json-schema")
    if args.regex is not None:
        return Grammar(kind="regex", text=args.regex, origin="--regex")
    if args.choice is not None:
        return Grammar.choice(args.choice, origin="--choice")
    if args.grammar is not None:
        return Grammar(kind="lark", text=_read(args.grammar), origin="--grammar")
    return None


def _read(path: Path) -> str:
    try:
        return read_named_file(path, MAX_TEXT_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read", seen=error, remedy="Give a file of text in UTF-8."
        ) from error
