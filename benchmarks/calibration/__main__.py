"""GPTQ to 4 bits in groups of 128, beside llm-compressor: seconds and peak memory, on a random
checkpoint of a true shape, the same samples, in alternating processes.

    benchmarks/install/llm_compressor.sh
    python -m benchmarks.calibration [--model qwen2.5-0.5b] [--json OUT]
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.checkpoints.folder import write_random_checkpoint
from benchmarks.checkpoints.shapes import CONFIGS
from paredown.errors import ConfigError
from paredown.kernels.probe import measure_machine
from paredown.models.config import spec_from_config
from paredown.units import format_bytes

PEER_PYTHON = Path(".venv-llm-compressor/bin/python")
PEER = Path(__file__).with_name("peer.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen2.5-0.5b", choices=CONFIGS)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not PEER_PYTHON.is_file():
        raise ConfigError(
            "llm-compressor is not installed",
            seen=f"no {PEER_PYTHON}",
            remedy="Run benchmarks/install/llm_compressor.sh.",
        )
    with tempfile.TemporaryDirectory(prefix="paredown-calibration-") as folder:
        runs = measure(Path(folder), args)
    result = {
        "model": args.model,
        "samples": args.samples,
        "tokens": args.tokens,
        "machine": asdict(measure_machine()),
        "runs": runs,
        "ratios": ratios(runs),
    }
    show(result)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(folder: Path, args: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Returns each side's runs; the sides alternate."""
    config = CONFIGS[args.model]
    write_random_checkpoint(config, folder / "model")
    rng = np.random.default_rng(0)
    vocab_size = spec_from_config(config).vocab_size
    np.save(folder / "tokens.npy", rng.integers(0, vocab_size, (args.samples, args.tokens)))
    sides = {
        "paredown": [sys.executable, "-m", "benchmarks.calibration.ours"],
        "llm-compressor": [str(PEER_PYTHON.absolute()), str(PEER)],
    }
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for number in range(args.rounds):
        for side, command in sides.items():
            output = folder / "out"
            words = [*command, str(folder / "model"), str(folder / "tokens.npy"), str(output)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{side} failed:\n{done.stderr[-4000:]}")
            runs[side].append(json.loads(done.stdout.strip().splitlines()[-1]))
            shutil.rmtree(output)
            print(f"round {number + 1}: {side}: {runs[side][-1]}", file=sys.stderr)
    return runs


def ratios(runs: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Returns the peer's median over ours."""
    return {
        key: statistics.median(one[key] for one in runs["llm-compressor"])
        / statistics.median(one[key] for one in runs["paredown"])
        for key in ("seconds", "peak_bytes")
    }


def show(result: dict[str, object]) -> None:
    runs, ratio = result["runs"], result["ratios"]
    assert isinstance(runs, dict)
    assert isinstance(ratio, dict)
    table = Table("", "seconds", "peak memory", title=f"{result['model']}, GPTQ int4-g128")
    for side, each in runs.items():
        seconds = ", ".join(f"{one['seconds']:.1f}" for one in each)
        memory = ", ".join(format_bytes(int(one["peak_bytes"])) for one in each)
        table.add_row(side, seconds, memory)
    table.add_row("ratio", f"{ratio['seconds']:.2f}x", f"{ratio['peak_bytes']:.2f}x")
    Console().print(table)


if __name__ == "__main__":
    main()
