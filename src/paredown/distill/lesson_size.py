"""LessonSize: the memory that a way to learn takes beside the student and its teacher."""

from collections.abc import Callable
from dataclasses import dataclass

# Returns the bytes that a thread takes for a part, from its rows, the tokens of each, and whether
# layers run twice (layout.py).
PartBytes = Callable[[int, int, bool], int]


def _nothing(num_rows: int, num_tokens: int, recomputes: bool) -> int:
    return 0


@dataclass(frozen=True, kw_only=True)
class LessonSize:
    """`num_parameters` are trained beside the student's."""

    num_parameters: int = 0
    part_bytes: PartBytes = _nothing
