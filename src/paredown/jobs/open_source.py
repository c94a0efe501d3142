"""Opens the checkpoint that a job starts from, in any way that the caller names it."""

from pathlib import Path

from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model


def open_source(model: Checkpoint | Path | str | None) -> Checkpoint:
    """Opens a folder or GGUF file by its path, or a packaged model by its name (None means
    "default"). Returns an open checkpoint unchanged. Raises CheckpointError."""
    if isinstance(model, Checkpoint):
        return model
    return Checkpoint.open(resolve_model(None if model is None else str(model)))
