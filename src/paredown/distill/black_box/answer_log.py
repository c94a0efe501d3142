"""AnswerLog: what a teacher was asked and said, in a file that only grows.

A line is written before a request is sent and another when it ends, so a process that is killed
loses neither an answer nor the tokens that may have been spent:

    {"asking": KEY, "bound": MOST, "tokens": RESERVED}
    {"answered": KEY, "tokens": USED, "text": ..., "finish_reason": ...}
    {"failed": KEY, "tokens": USED, "reason": ...}
"""

import fcntl
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from paredown.distill.black_box.answer import Answer
from paredown.errors import OutputError
from paredown.files.new_file import PRIVATE
from paredown.files.own_folder import is_own
from paredown.json_text import JsonTextError, parse_json
from paredown.shell_word import shell_path

_STARTS = (b'{"asking": ', b'{"answered": ', b'{"failed": ')
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class AnswerLog:
    """`answers` holds those of all runs by the key of their request. `num_tokens` is what all runs
    have spent; a request without an end counts with all that was reserved for it. `surplus` is the
    most by which a request has cost more than its bound."""

    def __init__(self, path: Path, file: io.FileIO) -> None:
        self._path = path
        self._file = file
        self._bounds: dict[str, int] = {}
        self._open: dict[str, int] = {}
        self._settled = 0
        self.surplus = 0
        self.answers: dict[str, Answer] = {}
        self._size = self._read()

    @property
    def num_tokens(self) -> int:
        return self._settled + sum(self._open.values())

    def ask(self, key: str, bound: int, reserved: int) -> None:
        """Notes that a request is about to be sent."""
        self._append({"asking": key, "bound": bound, "tokens": reserved})

    def answer(self, key: str, answer: Answer, used: int) -> None:
        """Keeps an answer; it is on the disk when this returns."""
        told = {"text": answer.text, "finish_reason": answer.finish_reason}
        self._append({"answered": key, "tokens": used, **told}, syncs=True)

    def fail(self, key: str, reason: str, used: int) -> None:
        """Notes that a request ended without an answer."""
        self._append({"failed": key, "tokens": used, "reason": reason})

    def _append(self, fields: Mapping[str, object], *, syncs: bool = False) -> None:
        line = json.dumps(fields).encode() + b"\n"
        left = memoryview(line)
        try:
            while left:
                # A disk that is nearly full takes a part.
                left = left[self._file.write(left) or 0 :]
            if syncs:
                os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._size)
            raise OutputError(
                f"the answers could not be written to {self._path}",
                seen=error.strerror or error,
                remedy="Free some space; the same command goes on after what was answered.",
            ) from error
        self._size += len(line)
        self._note(fields)

    def _read(self) -> int:
        """Reads what earlier runs have written, and removes a last line that was not finished.
        Returns the size of the rest."""
        size = 0
        self._file.seek(0)
        with os.fdopen(os.dup(self._file.fileno()), "rb") as lines:
            for number, line in enumerate(lines, 1):
                is_whole = line.endswith(b"\n")
                if not is_whole and _is_begun(line):
                    break
                try:
                    if not is_whole:
                        raise JsonTextError("a line without an end that is none of ours")
                    fields = parse_json(line)
                    if not isinstance(fields, dict):
                        raise JsonTextError("no object")
                    self._note(fields)
                except (JsonTextError, KeyError, TypeError) as error:
                    raise OutputError(
                        f"{self._path} does not hold the answers of an earlier run",
                        seen=f"line {number}: {error}",
                        remedy=f"Remove it (`rm {shell_path(self._path)}`), or choose another "
                        "output.",
                    ) from error
                size += len(line)
        self._file.truncate(size)
        return size

    def _note(self, fields: Mapping[str, object]) -> None:
        """Raises KeyError and TypeError for a line of another kind."""
        tokens = fields["tokens"]
        if not isinstance(tokens, int):
            raise TypeError("tokens that are no number")
        if isinstance(key := fields.get("asking"), str):
            # Asked before and never ended: a process was killed meanwhile.
            self._settled += self._open.pop(key, 0)
            self._open[key] = tokens
            if not isinstance(bound := fields["bound"], int):
                raise TypeError("a bound that is no number")
            self._bounds[key] = bound
            return
        key = fields["answered"] if "answered" in fields else fields["failed"]
        if not isinstance(key, str):
            raise TypeError("a key that is no text")
        self._open.pop(key, None)
        self._settled += tokens
        self.surplus = max(self.surplus, tokens - self._bounds.pop(key, tokens))
        if "answered" in fields:
            text, reason = fields["text"], fields["finish_reason"]
            if not isinstance(text, str) or not isinstance(reason, str | None):
                raise TypeError("an answer that is no text")
            self.answers[key] = Answer(text=text, finish_reason=reason, num_tokens=tokens)


def _is_begun(line: bytes) -> bool:
    """Returns whether it can be what a kill left of one of our lines."""
    return any(line.startswith(one) or one.startswith(line) for one in _STARTS)


@contextmanager
def open_answer_log(path: Path) -> Iterator[AnswerLog]:
    """Opens the log, or begins one, and holds its lock. Raises OutputError if another process has
    it, if another user could have written it, or if it is no such log."""
    try:
        descriptor = os.open(path, _FLAGS, PRIVATE)
    except OSError as error:
        raise OutputError(
            f"the answers cannot be kept in {path}",
            seen=error.strerror or error,
            remedy="Choose another output.",
        ) from error
    with io.FileIO(descriptor, "r+b") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not is_own(found):
            raise OutputError(
                f"{path} is no file that an earlier run of yours can have left, so it is not used",
                seen=f"user {found.st_uid}, mode {found.st_mode:o}",
                remedy=f"Remove it (`rm {shell_path(path)}`), or choose another output.",
            )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OutputError(
                "another process asks for the same output",
                seen=path,
                remedy="Wait for it, or choose another output.",
            ) from error
        yield AnswerLog(path, file)
