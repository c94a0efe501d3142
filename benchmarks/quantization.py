"""What each method gains over round to nearest, on the built-in model.

    python -m benchmarks.quantization [--only gptq] [--tokens 65536] [--json OUT]

Calibration: 128 windows of 512 tokens of the classic books' training split. Perplexity: their
held-out test split, through the native executor. The gap closed is (RTN - X) / (RTN - original), of
perplexities, or of their logarithms where a line says so.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from paredown.compress.compress import compress
from paredown.compress.recipe_names import find_recipe
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.texts.calibration_text import CalibrationConfig, choose_calibration
from paredown.evaluate.texts.text import EvalText, choose_text
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.probe import processor_name
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

Scale = Literal["linear", "log"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A recipe against another: the share of the baseline's gap that it is to close at least; 0
    where it is to be better, below 0 where it may widen it by so much."""

    recipe: str
    baseline: str
    bar: float = 0.0
    scale: Scale = "linear"


LINES = (
    Line(recipe="gptq-int4", baseline="int4", bar=0.40),
    Line(recipe="gptq-int4-g128", baseline="int4-g128", bar=0.25),
    Line(recipe="gptq-int3", baseline="int3", bar=0.55, scale="log"),
    Line(recipe="awq-int4-g128", baseline="int4-g128", bar=0.15),
    Line(recipe="hqq-int3-g64-asym", baseline="int3-g64-asym"),
    Line(recipe="hqq-int3-g32-asym", baseline="int3-g32-asym"),
    Line(recipe="hqq-int3-g64", baseline="int3-g64"),
    Line(recipe="hqq-int3-asym", baseline="int3-asym"),
    Line(recipe="hqq-int3", baseline="int3"),
    Line(recipe="w4a8-g32-qoq", baseline="int4-g32"),
    Line(recipe="w4a8-g32-qoq", baseline="w4a8-g32"),
    Line(recipe="w4a8-g128-qoq", baseline="w4a8-g128"),
    Line(recipe="w4a8-g32-asym-qoq", baseline="w4a8-g32-qoq"),
    Line(recipe="awq-w4a8-g32-qoq", baseline="w4a8-g32-qoq", bar=0.15),
    Line(recipe="awq-w4a8-g128-qoq", baseline="w4a8-g128-qoq", bar=0.15),
    # Integer steps beside any scales: how much wider the gap may become.
    Line(recipe="gptq-w4a8-g32-qoq", baseline="gptq-w4a8-g32", bar=-0.1),
    Line(recipe="gptq-w4a8-g128-qoq", baseline="gptq-w4a8-g128", bar=-0.1),
    Line(recipe="aqlm-1x8-g4", baseline="gptq-int2-g64-asym"),
    Line(recipe="aqlm-2x8-g8", baseline="gptq-int2-g64-asym"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="lines whose recipe has this in its name")
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    lines = [line for line in LINES if args.only is None or args.only in line.recipe]
    source = Checkpoint.open(resolve_model(None))
    measured = measure(source, lines, args.tokens)
    rows = [judged(line, measured) for line in lines]
    show(rows, measured)
    if args.json is not None:
        result = {"machine": processor_name(), "models": measured, "lines": rows}
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(source: Checkpoint, lines: list[Line], num_tokens: int) -> dict[str, dict[str, Any]]:
    """Every recipe's figures, and the original's."""
    tokenizer = Tokenizer.open(source.path)
    text = choose_text(None, tokenizer, num_tokens, _refuse, source.spec.max_positions)
    calibration = choose_calibration(
        CalibrationConfig(), tokenizer, _refuse, source.spec.max_positions
    )
    reference = load_executor(source, RunOptions(num_pages=num_pages_for(text)))
    measured: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
        for name in dict.fromkeys(name for line in lines for name in (line.baseline, line.recipe)):
            start = time.perf_counter()
            recipe = find_recipe(name)
            result = compress(source, Path(folder) / name, recipe, calibration=calibration)
            seconds = time.perf_counter() - start
            quality = _quality(result.path, text, reference)
            measured[name] = {
                **quality,
                "bits_per_weight": result.bits_per_weight,
                "seconds": seconds,
                "notes": list(result.notes),
            }
            print(f"{name}: {measured[name]}", file=sys.stderr)
    own, _ = measure_quality([reference], text)
    measured["original"] = asdict(own[0])
    return measured


def _quality(folder: Path, text: EvalText, reference: LoadedExecutor) -> dict[str, Any]:
    executor = load_executor(Checkpoint.open(folder), RunOptions(num_pages=num_pages_for(text)))
    qualities, _ = measure_quality([executor], text, reference)
    return asdict(qualities[0])


def _refuse() -> LoadedExecutor:
    raise SystemExit("Set PAREDOWN_DATA: the figures are of the classic books.")


def judged(line: Line, measured: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The line with the share of the gap that was closed."""
    values = [measured[name]["perplexity"] for name in (line.baseline, line.recipe, "original")]
    if line.scale == "log":
        values = [math.log(value) for value in values]
    baseline, ours, original = values
    return asdict(line) | {"closed": (baseline - ours) / (baseline - original)}


def show(rows: list[dict[str, Any]], measured: dict[str, dict[str, Any]]) -> None:
    original = measured["original"]["perplexity"]
    table = Table(
        "recipe", "bits", "perplexity", "KL", "baseline", "closed", "bar",
        title=f"original: {original:.4f}",
    )  # fmt: skip
    for row in rows:
        own, base = measured[row["recipe"]], measured[row["baseline"]]
        table.add_row(
            row["recipe"],
            f"{own['bits_per_weight']:.2f}",
            f"{own['perplexity']:.4f}",
            f"{own['kl_divergence']:.5f}",
            f"{row['baseline']} {base['perplexity']:.4f}",
            f"{row['closed']:.1%}" + (" (log)" if row["scale"] == "log" else ""),
            f"{row['bar']:.0%}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
