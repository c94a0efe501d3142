"""The standard streams as every verb needs them."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path

_ASCII = ("ascii", "us-ascii", "ansi_x3.4-1968", "646")


def prepare_streams() -> None:
    """Opens streams that the caller closed, and has those take every text that are not UTF-8: a
    "?" stands for what they cannot show. What is read where only ASCII is expected is UTF-8."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Other ways to write what cannot be encoded are the user's own choice.
        if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")
    if isinstance(sys.stdin, TextIOWrapper) and sys.stdin.encoding.lower() in _ASCII:
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")


def text_of(word: str) -> str:
    """A word of the command line that is a text for a model. Where only ASCII is expected Python
    has put marks in place of its other bytes; they are UTF-8, as far as they are any text."""
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeError:
        return word
