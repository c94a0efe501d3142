"""Paredown at the task of peer.py: `python -m benchmarks.calibration.ours MODEL TOKENS OUTPUT`."""

import json
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.models.checkpoint import Checkpoint


def main(folder: str, tokens: str, output: str) -> None:
    calibration = Calibration(windows_NT=np.load(tokens), source="random tokens")
    start = time.perf_counter()
    result = compress(
        Checkpoint.open(Path(folder)), Path(output), "gptq-int4-g128", calibration=calibration
    )
    seconds = time.perf_counter() - start
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {
                "seconds": seconds,
                "peak_bytes": peak_bytes,
                "predicted_bytes": result.predicted_bytes,
                "versions": f"paredown {version('paredown')}, torch {torch.__version__}",
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
