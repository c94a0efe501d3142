"""Reads traces of requests to real services: arrival times and lengths, without texts.

Azure 2023   CSV: TIMESTAMP, ContextTokens, GeneratedTokens (Patel et al., Splitwise, 2024)
Vidur        CSV: arrived_at in seconds, num_prefill_tokens, num_decode_tokens
Mooncake     JSON lines: timestamp in ms, input_length, output_length, and hash_ids, one for each
             512 tokens of the prompt, equal where the text up to there is (Qin et al., 2025)
"""

import csv
import io
import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from paredown.errors import ConfigError
from paredown.evaluate.load.arrival import BLOCK_TOKENS, Arrival
from paredown.files.named_file import open_named_file
from paredown.json_text import JsonTextError, parse_json
from paredown.shown import quoted, shown, shown_list

Row = dict[str, object]
# A prompt of a million tokens has 2,000 block hashes of at most ten characters.
MAX_LINE_CHARS = 1_000_000
MAX_TOKENS = 2**31 - 1


def read_trace(path: Path, max_requests: int | None = None) -> list[Arrival]:
    """Reads all requests of a trace, or the first `max_requests`, with the first at 0 s. Raises
    ConfigError, with the line, for a file that is no trace, has no request, or goes back in time.
    """
    found: list[Arrival] = []
    try:
        with io.TextIOWrapper(open_named_file(path), "utf-8", newline="") as text:
            for number, row in itertools.islice(_rows(path, _lines(path, text)), max_requests):
                found.append(_arrival(path, number, row))
                if len(found) > 1 and found[-1].at_s < found[-2].at_s:
                    raise _error(path, number, "a request comes before the one above it", row)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "the trace cannot be read", seen=error, remedy="Give a CSV or JSON lines file."
        ) from error
    if not found:
        raise ConfigError("the trace has no requests", seen=path, remedy="Give another file.")
    first = found[0].at_s
    return [replace(one, at_s=one.at_s - first) for one in found]


def _lines(path: Path, text: TextIO) -> Iterator[str]:
    """Yields lines of limited length, because an endless line would fill the memory."""
    for number in itertools.count(1):
        line = text.readline(MAX_LINE_CHARS + 1)
        if not line:
            return
        if len(line) > MAX_LINE_CHARS:
            what = f"a line has more than {MAX_LINE_CHARS:,} characters"
            raise _error(path, number, what, shown(line, 80))
        yield line


def _rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, Row]]:
    """Yields rows with their line numbers from 1."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        return
    if first[1].lstrip().startswith("{"):
        for number, line in itertools.chain([first], numbered):
            try:
                row = parse_json(line)
            except JsonTextError as error:
                raise _error(path, number, f"this is not JSON: {error}", shown(line, 80)) from error
            if not isinstance(row, dict):
                raise _error(path, number, "this is not a JSON object", shown(line, 80))
            yield number, row
        return
    names = _cells(path, *first)
    _known_columns(path, first[0], names)
    for number, line in numbered:
        values = _cells(path, number, line)
        if len(values) != len(names):
            raise _error(path, number, f"there are not {len(names)} columns", shown(line, 80))
        yield number, dict(zip(names, values, strict=True))


def _cells(path: Path, number: int, line: str) -> list[str]:
    try:
        (cells,) = csv.reader([line])
    except csv.Error as error:
        raise _error(path, number, f"this is not CSV: {error}", shown(line, 80)) from error
    return cells


def _arrival(path: Path, number: int, row: Row) -> Arrival:
    names = _known_columns(path, number, row)
    time, inputs, outputs = names
    try:
        num_input_tokens = _count(row[inputs])
        return Arrival(
            at_s=_TIMES[names](row[time]),
            num_input_tokens=num_input_tokens,
            num_output_tokens=_count(row[outputs]),
            block_ids=_block_ids(row.get("hash_ids", []), num_input_tokens),
        )
    except (TypeError, ValueError) as error:
        raise _error(path, number, str(error), row) from error


def _known_columns(path: Path, number: int, names: Collection[str]) -> tuple[str, str, str]:
    for known in _TIMES:
        if set(known) <= set(names):
            return known
    raise ConfigError(
        f"{path}, line {number}: these are not the columns of a trace that is known",
        seen=shown_list(names),
        remedy=f"Known are {'; '.join(', '.join(known) for known in _TIMES)}.",
    )


def _from_timestamp(value: object) -> float:
    # Timestamps have seven decimals, but Python's datetime reads six.
    return datetime.fromisoformat(str(value)[:26]).replace(tzinfo=UTC).timestamp()


def _number(value: object) -> float:
    number = float(str(value))
    if not 0 <= number < float("inf"):
        raise ValueError(f"{shown(value, 80)} is not a valid time")
    return number


def _count(value: object) -> int:
    count = int(str(value))
    if count < 1:
        raise ValueError(f"{shown(value, 80)} tokens are too few")
    if count > MAX_TOKENS:
        raise ValueError(f"{shown(value, 80)} tokens are more than {MAX_TOKENS:,}")
    return count


def _block_ids(value: object, num_tokens: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"hash_ids is not a list: {quoted(value)}")
    if not all(isinstance(one, int) and one >= 0 for one in value):
        raise ValueError(f"hash_ids are not all numbers: {quoted(value)}")
    ids = tuple(value)
    if ids and len(ids) != -(-num_tokens // BLOCK_TOKENS):
        raise ValueError(f"{len(ids)} hash_ids for {num_tokens} tokens")
    return ids


def _error(path: Path, number: int, what: str, seen: object) -> ConfigError:
    return ConfigError(
        f"{path}, line {number}: {what}", seen=seen, remedy="Mend the line, or leave it out."
    )


# The columns of time, prompt and answer, and the parser of the time.
_TIMES: dict[tuple[str, str, str], Callable[[object], float]] = {
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"): _from_timestamp,
    ("arrived_at", "num_prefill_tokens", "num_decode_tokens"): _number,
    ("timestamp", "input_length", "output_length"): lambda value: _number(value) / 1000,
}
