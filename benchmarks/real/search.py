"""The candidates that `optimize` finds on the real folders, and whether it holds its time."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.build import ROOT
from benchmarks.first_token import PROGRAM
from benchmarks.real.row import Row, Section

MAX_LOSS = 0.01
MAX_READ_SHARE = 0.45
MAX_FOLDER_SHARE = 0.60
MIN_GAIN_SHARE = 0.85
SMALL_MAX_S = 6 * 60.0
LARGE_MINUTES = 20
LARGE_MAX_S = 22 * 60.0
# Methods that read calibration text: at least one of them must have been measured.
CALIBRATED = ("gptq", "awq")


@dataclass(frozen=True, kw_only=True)
class Search:
    """`result` is what --json printed."""

    seconds: float
    result: Mapping[str, Any]


def run_search(folder: Path, output: Path, *options: str) -> Search:
    """Raises CalledProcessError where nothing was chosen."""
    shutil.rmtree(output, ignore_errors=True)
    command = [PROGRAM, "optimize", str(folder), "--output", str(output), "--no-report", "--json"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return Search(seconds=time.perf_counter() - started, result=json.loads(done.stdout))


def section(folders: Mapping[str, Path], work: Path) -> Section:
    small, large = list(folders)[:2]
    print(f"optimize: {small}", file=sys.stderr, flush=True)
    rows = _small_rows(small, run_search(folders[small], work / small))
    print(f"optimize: {large}", file=sys.stderr, flush=True)
    found = run_search(folders[large], work / large, "--minutes", str(LARGE_MINUTES))
    calibrated = [
        one["name"]
        for one in found.result["candidates"]
        if any(method in one["name"] for method in CALIBRATED)
    ]
    rows.append(
        Row(
            name=f"{large}, --minutes {LARGE_MINUTES}",
            asked=f"at most {LARGE_MAX_S / 60:g} minutes, with a GPTQ or AWQ candidate",
            found=f"{found.seconds / 60:.1f} minutes, chose {found.result['chosen']}; measured "
            + (", ".join(calibrated) or "none of them"),
            meets=found.seconds <= LARGE_MAX_S and bool(calibrated),
        )
    )
    return Section(
        title="What optimize finds",
        protocol="`paredown optimize FOLDER` with its defaults, from the start of the process to "
        "the verified folder. Decode gains beside the ratio of the bytes that a token reads.",
        rows=rows,
    )


def _small_rows(name: str, found: Search) -> list[Row]:
    """The rows about the candidate that was chosen."""
    reference = found.result["reference"]
    chosen = next(
        one for one in found.result["candidates"] if one["name"] == found.result["chosen"]
    )
    loss = chosen["perplexity"] / reference["perplexity"] - 1
    # Weights, of bf16 as the files have it, which the core may hold in fewer bits.
    held = found.result["verification"]["compressed"]["held_bytes"]
    read = held / reference["file_bytes"]
    ratio = reference["decode_bytes"] / chosen["decode_bytes"]
    size = chosen["file_bytes"] / reference["file_bytes"]
    gain = chosen["decode_tokens_per_s"] / reference["decode_tokens_per_s"] / ratio
    meets = loss <= MAX_LOSS and read <= MAX_READ_SHARE and size <= MAX_FOLDER_SHARE
    return [
        Row(
            name=f"{name}, the candidate chosen",
            asked=f"loss at most {MAX_LOSS:.0%}, reads at most {MAX_READ_SHARE}, folder at most "
            f"{MAX_FOLDER_SHARE} of bf16",
            found=f"{chosen['name']}: loss {loss:+.2%}, reads {read:.3f} (weights), "
            f"folder {size:.3f}",
            meets=meets,
            decides=True,
        ),
        Row(
            name=f"{name}, what its decode gains of the ratio of bytes",
            asked=f"at least {MIN_GAIN_SHARE}",
            found=f"{gain:.2f}",
            meets=gain >= MIN_GAIN_SHARE,
        ),
        Row(
            name=f"{name}, time",
            asked=f"at most {SMALL_MAX_S / 60:g} minutes",
            found=f"{found.seconds / 60:.1f} minutes",
            meets=found.seconds <= SMALL_MAX_S,
        ),
    ]
