"""Prepares the standard streams for every verb."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path

_ASCII = ("ascii", "us-ascii", "ansi_x3.4-1968", "646")


def prepare_streams() -> None:
    """Reopens closed streams, and lets streams that are not UTF-8 accept any text by printing "?"
    for what they cannot show. Input is read as UTF-8 even in an ASCII locale."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Any other error handler was the user's choice.
        if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")
    if isinstance(sys.stdin, TextIOWrapper) and sys.stdin.encoding.lower() in _ASCII:
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")


def text_of(word: str) -> str:
    """Returns a command-line word as text for a model. In an ASCII locale Python stores its other
    bytes as surrogates, which are decoded as UTF-8 where valid."""
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeError:
        return word
