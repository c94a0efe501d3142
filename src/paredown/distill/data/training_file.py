"""Reads the records of a training file, one at a time.

A file of JSON lines (.jsonl, .ndjson) has a record in each line. Any other file is a UTF-8 text,
which is cut at ends of lines into stretches. Names that end in .xz are decompressed.
"""

import codecs
import io
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from paredown.distill.data.record import PlainText, Record, UnusableError, parse_record
from paredown.errors import CheckpointError, ConfigError
from paredown.units import MEBI

_JSON_LINES = {".jsonl", ".ndjson"}
_PACKED = ".xz"
# A longer line is no example; reading it would only take memory.
_MAX_LINE_BYTES = 16 * MEBI
# Stretches are held out or trained on as a whole: each is long enough to fill rows, and there are
# so many that a share of them can be held out.
_STRETCH_CHARS = (1024, 8192)
_NUM_STRETCHES = 64
# An encoder learns from the sentences at the beginning of a text.
_MAX_TEXT_BYTES = 64 * MEBI
_REMEDY = "Name a UTF-8 text or a file of JSON lines (--data)."


def read_records(path: Path) -> Iterator[Record | UnusableError]:
    """Yields each record of the file, or why it cannot be used. Raises CheckpointError for a file
    that cannot be read, and ConfigError for a text that is not UTF-8."""
    try:
        with _opened(path) as file:
            if is_json_lines(path):
                yield from map(_parsed, _lines(file))
            else:
                yield from _stretches(file, path)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise _unreadable(path, error) from error


def is_json_lines(path: Path) -> bool:
    """Returns whether a file of that name has a record in each line."""
    kind = Path(path.stem).suffix if path.suffix == _PACKED else path.suffix
    return kind in _JSON_LINES


def read_lines(path: Path) -> Iterator[bytes | UnusableError]:
    """Yields the lines of a file that have something in them, or why one cannot be used. Raises
    CheckpointError for a file that cannot be read."""
    try:
        with _opened(path) as file:
            yield from _lines(file)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise _unreadable(path, error) from error


def read_whole_text(path: Path) -> str:
    """Returns the text of a file, the beginning of a long one. Raises CheckpointError for a file
    that cannot be read, and ConfigError for one that is not UTF-8."""
    try:
        with _opened(path) as file:
            raw = file.read(_MAX_TEXT_BYTES)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise _unreadable(path, error) from error
    try:
        # The cut may split a character.
        return raw.decode("utf-8-sig", "ignore" if len(raw) == _MAX_TEXT_BYTES else "strict")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text", seen=error, remedy=_REMEDY) from error


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"the training data {path} cannot be read", seen=error, remedy=_REMEDY)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        if path.suffix == _PACKED:
            with lzma.open(file, "rb") as unpacked:
                yield io.BufferedReader(unpacked)
        else:
            yield file


def _parsed(line: bytes | UnusableError) -> Record | UnusableError:
    if isinstance(line, UnusableError):
        return line
    try:
        return parse_record(line)
    except UnusableError as error:
        return error


def _lines(file: IO[bytes]) -> Iterator[bytes | UnusableError]:
    is_first = True
    while line := file.readline(_MAX_LINE_BYTES):
        if is_first:
            line, is_first = line.removeprefix(codecs.BOM_UTF8), False
        if not line.endswith(b"\n") and len(line) >= _MAX_LINE_BYTES:
            while (rest := file.readline(_MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            yield UnusableError(f"a line of more than {_MAX_LINE_BYTES // MEBI} MiB")
        elif line.strip():
            yield line


def _stretches(file: IO[bytes], path: Path) -> Iterator[Record]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    least, most = _STRETCH_CHARS
    size = max(least, min(most, path.stat().st_size // _NUM_STRETCHES))
    waiting = ""
    try:
        while piece := file.readline(size):
            waiting += decoder.decode(piece)
            if len(waiting) >= size:
                yield from _stretch(waiting)
                waiting = ""
        waiting += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text", seen=error, remedy=_REMEDY) from error
    yield from _stretch(waiting)


def _stretch(text: str) -> Iterator[PlainText]:
    if text.strip():
        yield PlainText(text=text, ends=False)
