"""The names of what can be kept of a teacher's distributions."""

import re
from collections.abc import Callable

from paredown.distill.teacher_logits.draws import Draws
from paredown.distill.teacher_logits.keep import Keep
from paredown.distill.teacher_logits.top import Top
from paredown.distill.teacher_logits.whole import Whole
from paredown.errors import ConfigError

_NAME = re.compile(r"(samples|top)-([1-9]\d{0,8})(-renormalized)?")
_NAMES = "samples-50, top-64, top-64-renormalized or whole"
KEEPS: dict[str, Callable[[int], Keep]] = {
    "samples": lambda number: Draws(num_draws=number),
    "top": lambda number: Top(num_tokens=number),
    "top-renormalized": lambda number: Top(num_tokens=number, missing_mass="renormalized"),
}


def parse_keep(name: str) -> Keep:
    """Returns what is kept under that name. Raises ConfigError for an unknown one."""
    if name == "whole":
        return Whole()
    match = _NAME.fullmatch(name)
    kind = None if match is None else match[1] + (match[3] or "")
    if match is None or kind not in KEEPS:
        raise ConfigError(
            "this cannot be kept of a teacher's distributions",
            seen=name,
            remedy=f"Give {_NAMES}, with numbers of yours.",
        )
    return KEEPS[kind](int(match[2]))
