"""The outcome of one test of a peer's suite, and the rules by which a test is left out."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

Kind = Literal["passed", "refused", "left_out", "failed"]


class Rule(StrEnum):
    """Why a test says nothing about this server."""

    WORDS = "asserts one model's words, choices or counts"
    ROUTE = "asks a route of that program alone"
    FLAG = "needs a flag or a field of that program alone"
    MODULES = "runs that program's own modules, not a server"
    MODEL = "needs a model with pictures, or one that it downloads"
    CLIENT = "takes from its client what the client itself refuses"
    ELSEWHERE = "the same check runs elsewhere here"
    SUITE = "the suite itself leaves it out"


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Why a test is left out: the rule, and what in the test it applies to."""

    rule: Rule
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one test. `refused` is a 400 or 404 that names what is not served; `reason`
    tells the rule of what is left out or refused, and the error of what failed."""

    suite: str
    test: str
    kind: Kind
    reason: str = ""

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def read_outcomes(path: Path) -> Iterator[Outcome]:
    """Yields the outcomes of a file of JSON lines."""
    for line in path.read_text("utf-8").splitlines():
        yield Outcome(**json.loads(line))
