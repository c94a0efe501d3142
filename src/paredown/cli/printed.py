"""All output to the terminal: lines, JSON and answers go through here, tables and progress through
`console.py`, and logs through `log_lines.py` (tests/security/test_shown_text.py).
Names of files and models, config fields and a model's output are untrusted: lines are escaped and
cut by `paredown/shown.py`.
"""

import json
import sys

from paredown.shown import shown, shown_answer

# Lines of help and of tables are far shorter.
MAX_LINE_CHARS = 6_000
_DELETE = "\x7f"


def say(line: str = "", *, flush: bool = False) -> None:
    """Prints a line to stdout."""
    print(shown(line, MAX_LINE_CHARS), flush=flush)


def say_own(text: str) -> None:
    """Prints text that is entirely our own, such as a help page, to stdout."""
    print(text)


def tell(line: str) -> None:
    """Prints a line to stderr, where notes and errors go."""
    print(shown(line, MAX_LINE_CHARS), file=sys.stderr)


def say_json(value: object, *, indent: int | None = 2, flush: bool = False) -> None:
    """Prints ASCII JSON to stdout, which is also safe to look at in a terminal."""
    # JSON escapes every control character except this one.
    print(json.dumps(value, indent=indent).replace(_DELETE, "\\u007f"), flush=flush)


def say_answer(text: str) -> None:
    """Prints a piece of a model's answer as it arrives. For a terminal, control sequences are
    escaped; a file or another program gets the text unchanged."""
    sys.stdout.write(shown_answer(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def prompt(text: str) -> None:
    """Prints a prompt for keyboard input."""
    sys.stderr.write(text)
    sys.stderr.flush()
