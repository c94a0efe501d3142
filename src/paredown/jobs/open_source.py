"""The checkpoint that a job starts from, however the caller names it."""

from pathlib import Path

from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model


def open_source(model: Checkpoint | Path | str | None) -> Checkpoint:
    """Opens a folder or a GGUF file by its path, a packaged model by its name ("default", also for
    None), and returns a checkpoint that is open already as it is. Raises CheckpointError."""
    if isinstance(model, Checkpoint):
        return model
    return Checkpoint.open(resolve_model(None if model is None else str(model)))
