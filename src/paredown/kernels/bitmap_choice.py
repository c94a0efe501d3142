"""Chooses when the zeros of a weight become a bit each: where that pays, or what PAREDOWN_BITMAP
forces (docs/internals/sparse.md)."""

import os
from typing import Literal

from paredown.errors import ConfigError

ENVIRONMENT_VARIABLE = "PAREDOWN_BITMAP"
BitmapChoice = Literal["auto", "never", "always"]
CHOICES: tuple[BitmapChoice, ...] = ("auto", "never", "always")


def chosen_bitmap() -> BitmapChoice:
    """Returns the choice in force. Raises ConfigError if the variable names none."""
    forced = os.environ.get(ENVIRONMENT_VARIABLE, "") or "auto"
    if forced not in CHOICES:
        raise ConfigError(
            f"{ENVIRONMENT_VARIABLE} names no way to hold weights with zeros",
            seen=forced,
            remedy=f"Use one of {', '.join(CHOICES)}, or unset it.",
        )
    return forced
