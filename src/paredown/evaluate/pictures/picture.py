"""Shared parts of the plots: optional matplotlib, and the colours."""

import importlib
from dataclasses import dataclass
from typing import Any

from paredown.errors import UnsupportedError
from paredown.installation import pip
from paredown.shown import shown

_MAX_LABEL_CHARS = 120

# Okabe and Ito's palette (2008), which colour-blind readers can tell apart.
BLUE, SKY, RED, ORANGE, GREEN, PINK = (
    "#0072B2",
    "#56B4E9",
    "#D55E00",
    "#E69F00",
    "#009E73",
    "#CC79A7",
)


@dataclass(frozen=True, kw_only=True)
class Theme:
    ink: str
    faint: str
    grid: str
    paper: str
    shade: str
    front: str


LIGHT = Theme(
    ink="#1f2328",
    faint="#59636e",
    grid="#e4e8ec",
    paper="#ffffff",
    shade="#eaf5ef",
    front="#9fb3c8",
)
DARK = Theme(
    ink="#e6edf3",
    faint="#9198a1",
    grid="#2a313a",
    paper="#151b23",
    shade="#16291f",
    front="#3d5166",
)


def picture_text(text: str) -> str:
    """Returns a model or file name as a label. It is escaped, also so that dollar signs do not
    start a formula, which could make drawing fail."""
    return shown(text, _MAX_LABEL_CHARS).replace("$", r"\$")


def require_matplotlib(without: str) -> None:
    """Raises UnsupportedError when matplotlib is not installed; `without` is the remedy that avoids
    the picture."""
    try:
        load_matplotlib("matplotlib.figure")
    except ImportError as error:
        raise UnsupportedError(
            "drawing a picture needs matplotlib",
            seen=error,
            remedy=f"Install it with `{pip('install', 'matplotlib')}`, or {without}.",
        ) from error


def load_matplotlib(module: str) -> Any:
    """Imports a module of matplotlib, which is an extra and slow to import. Raises ImportError."""
    return importlib.import_module(module)
