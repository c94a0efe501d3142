"""Finds the importance of columns for a job: from a file, or from a text that passes through the
model."""

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
    """How the K-quants of GGUF are fitted.

    `source`       "auto" measures the inputs while the calibration text passes through the model;
                   a path names an importance matrix of llama.cpp; None counts all columns alike
    `calibration`  the text for "auto", or where to take it from
    `save`         where to write the importance, as an importance matrix of llama.cpp
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
    """Reads or measures the importance, and saves it if asked. A measurement lies in a hidden
    folder beside `output` until it is complete, so that a killed run can resume. Raises the errors
    of `read_importance`, `calibration_windows` and `importance_walk`, and OutputError if the
    importance cannot be saved."""
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
    """Raises OutputError, before any work, if the importance could not be written there at the
    end."""
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
    # A job that only reads files needs no PyTorch.
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
