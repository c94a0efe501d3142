"""Checkpoints of a run in training, written so that a kill never leaves half a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write beside `path`, then rename over it."""
    beside = path.with_suffix(".tmp")
    torch.save(state, beside)
    beside.replace(path)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The state that `save_checkpoint` wrote; tensors only, no code is run from the file."""
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state
