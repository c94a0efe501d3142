"""The importance of columns that a job quantizes by: from a file, or from a text that passes
through the model."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.source_digest import source_digest
from paredown.compress.calibrate.workspace import check_workspace, open_workspace, workspace_path
from paredown.compress.convert.importance_file import read_importance, write_importance
from paredown.compress.importance import Importance
from paredown.errors import OutputError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.jobs.calibration_windows import calibration_windows
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

_CALIBRATION = CalibrationConfig()


@dataclass(frozen=True, kw_only=True)
class ImportanceConfig:
    """By what the K-quants of GGUF are fitted.

    `source`       "auto" is what flows when the calibration text passes through the model, a path
                   an importance matrix of llama.cpp's; None counts all columns alike
    `calibration`  the text of "auto", or where to take it from
    `save`         where to write it, as llama.cpp's importance matrix
    """

    source: Path | Literal["auto"] | None = "auto"
    calibration: Calibration | CalibrationConfig = _CALIBRATION
    save: Path | None = None


def find_importance(
    source: Checkpoint,
    output: Path,
    config: ImportanceConfig,
    num_threads: int | None,
    on_progress: OnProgress,
) -> Importance | None:
    """Reads or makes the importance, and saves it where that is asked for. What is made lies in a
    hidden folder beside `output` until it is whole, so that a run that was killed goes on. Raises
    what `read_importance`, `calibration_windows` and `importance_walk` raise, and OutputError where
    it cannot be saved."""
    if config.save is not None:
        _check_save(config.save, output, config)
    if config.source is None:
        return None
    if config.source == "auto":
        found = _calibrated(source, output, config, num_threads, on_progress)
    else:
        found = read_importance(config.source, source)
    if config.save is not None:
        write_importance(config.save, found, source)
    return found


def _check_save(save: Path, output: Path, config: ImportanceConfig) -> None:
    """Raises OutputError before any work for a place where it could not lie at the end."""
    seen = None
    if config.source is None:
        seen = "no importance (--importance none)"
    elif save.exists():
        seen = "a folder" if save.is_dir() else "a file"
    elif save.absolute() == output.absolute():
        seen = "the name of the output"
    elif not save.absolute().parent.is_dir():
        seen = "no such folder"
    if seen is not None:
        raise OutputError(
            f"the importance cannot be saved to {save}",
            seen=seen,
            remedy="Choose another name, or leave --save-importance out.",
        )


def _calibrated(
    source: Checkpoint,
    output: Path,
    config: ImportanceConfig,
    num_threads: int | None,
    on_progress: OnProgress,
) -> Importance:
    # What reads files alone needs no PyTorch.
    from paredown.compress.calibrate.importance_walk import importance_walk

    check_workspace(workspace_path(output))
    windows = calibration_windows(source, config.calibration, num_threads)
    parts = [
        "importance",
        source_digest(source),
        json.dumps(source.config, sort_keys=True, default=str),
        windows.digest,
    ]
    fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    with open_workspace(workspace_path(output), fingerprint) as workspace:
        return importance_walk(source, windows, workspace, on_progress)
