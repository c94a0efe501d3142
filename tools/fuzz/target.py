"""Target: a reader and the inputs from which its fuzzing starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Target:
    """`run` reads a file; it returns, or raises one of paredown.errors or of `refusals`.
    `file_name` is the name that the reader expects."""

    name: str
    run: Callable[[Path], None]
    seeds: Callable[[], Sequence[bytes]]
    file_name: str
    is_json: bool = False
    is_default: bool = True
    refusals: tuple[type[Exception], ...] = ()
