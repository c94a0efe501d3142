"""The one door to the terminal: lines, JSON and answers go through here, tables and progress
through `console.py`, logs through `log_lines.py` (tests/security/test_shown_text.py).

Names of files and models, fields of configurations and what a model writes are strangers' texts:
lines are escaped and cut as `paredown/shown.py` does it.
"""

import json
import sys

from paredown.shown import shown, shown_answer

# A line of help or of a table is far shorter.
MAX_LINE_CHARS = 6_000
_DELETE = "\x7f"


def say(line: str = "", *, flush: bool = False) -> None:
    """A line of stdout."""
    print(shown(line, MAX_LINE_CHARS), flush=flush)


def say_own(text: str) -> None:
    """Lines of stdout that are all our own: a help page."""
    print(text)


def tell(line: str) -> None:
    """A line of stderr, where notes and errors go."""
    print(shown(line, MAX_LINE_CHARS), file=sys.stderr)


def say_json(value: object, *, indent: int | None = 2, flush: bool = False) -> None:
    """JSON on stdout, in ASCII: whoever looks at it instead of parsing it is safe too."""
    # JSON escapes every control character but this one.
    print(json.dumps(value, indent=indent).replace(_DELETE, "\\u007f"), flush=flush)


def say_answer(text: str) -> None:
    """A piece of what a model writes, as it comes. A terminal gets it with what would steer it
    escaped; a file or another program gets it as it is."""
    sys.stdout.write(shown_answer(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def prompt(text: str) -> None:
    """What stands before the place where somebody types."""
    sys.stderr.write(text)
    sys.stderr.flush()
