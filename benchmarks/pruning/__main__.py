"""Measures the cost of pruning and its gain, on the built-in model or on SmolLM2.

    python -m benchmarks.pruning layers zeros cuts bytes cost [--model FOLDER] [--json OUT]
    python -m benchmarks.pruning speed [--model FOLDER | --shape llama-3.2-1b --shape-layers 8]

layers  the error of every layer by every method, at half of the weights
zeros   perplexity at half of the weights, 4 of 8 and 2 of 4
cuts    a quarter of the neurons, or a share of the layers, before and after recovery
bytes   pruned models beside quantized ones of equal bytes and equal speed
cost    time and peak memory of the methods beside those of GPTQ
speed   prefill and decode of cut shapes beside the removed share of FLOPs and bytes

Texts are those of the classic books under PAREDOWN_DATA: calibration and training from the training
split, perplexity and KL divergence on the test split, which shares no author with it.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.checkpoints.shapes import CONFIGS
from benchmarks.kept_models import KeptModels, kept_models
from benchmarks.pruning.cost import RECIPES, measure_cost, show_cost
from benchmarks.pruning.cuts import Measured, cut_of, measure_cut
from benchmarks.pruning.equal_bytes import measure_bytes
from benchmarks.pruning.layers import METHODS, measure_layers
from benchmarks.pruning.speed import measure_speed, shorter, show_speed
from benchmarks.pruning.zeros import METHODS as ZERO_METHODS
from benchmarks.pruning.zeros import PATTERNS, REFINED, gap_closed, measure_zeros
from paredown.compress.calibrate.source_digest import source_digest
from paredown.evaluate.texts.calibration_text import CalibrationConfig, choose_calibration
from paredown.evaluate.texts.text import choose_text
from paredown.executors.protocol import LoadedExecutor
from paredown.kernels.probe import default_num_threads, processor_name
from paredown.models.checkpoint import Checkpoint
from paredown.models.config import spec_from_config
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.model import ModelSpec

PARTS = ("layers", "zeros", "cuts", "bytes", "cost", "speed")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--model", help="a folder (default: the built-in model)")
    parser.add_argument("--tokens", type=int, default=16384, help="tokens that are predicted")
    parser.add_argument("--samples", type=int, default=64, help="windows of calibration")
    parser.add_argument("--train-tokens", type=int, default=500_000)
    parser.add_argument("--cut", choices=["ffn", "layers"], nargs="+", default=["ffn", "layers"])
    parser.add_argument(
        "--ways",
        nargs="*",
        choices=["kl", "text", "random"],
        default=["kl", "text", "random"],
        help="of training cut models (none: cut and compensated alone)",
    )
    parser.add_argument(
        "--folder", type=Path, help="keeps cut and trained models, and goes on from them"
    )
    parser.add_argument("--recipes", nargs="+", help="of zeros, cost and bytes (default: all)")
    parser.add_argument("--shape", choices=CONFIGS, help="of speed, in place of the model's")
    parser.add_argument("--shape-layers", type=int, help="its first layers (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="of cost and speed")
    parser.add_argument("--threads", type=int, default=default_num_threads(), help="of speed")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    measured = prepare(args)
    found: dict[str, Any] = {"machine": processor_name(), "model": args.model or "built-in"}
    settings = {
        "source": source_digest(measured.source),
        "tokens": args.tokens,
        "samples": args.samples,
        "train_tokens": args.train_tokens,
    }
    with kept_models(args.folder, settings) as models:
        for part in args.parts:
            found[part] = run(part, measured, models, args)
            if args.json is not None:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=2) + "\n")


def prepare(args: argparse.Namespace) -> Measured:
    source = Checkpoint.open(resolve_model(args.model))
    tokenizer = Tokenizer.open(source.path)
    limit = source.spec.max_positions
    return Measured(
        source=source,
        text=choose_text(None, tokenizer, args.tokens, _refuse, limit),
        calibration=choose_calibration(
            CalibrationConfig(num_samples=args.samples), tokenizer, _refuse, limit
        ),
        num_tokens=args.train_tokens,
    )


def run(
    part: str, measured: Measured, models: KeptModels, args: argparse.Namespace
) -> dict[str, Any]:
    if part == "layers":
        found = measure_layers(measured.source, measured.calibration, "50", report)
        show_layers(found)
    elif part == "zeros":
        names = [*(f"{method}-{one}" for method in ZERO_METHODS for one in PATTERNS), *REFINED]
        names = args.recipes or names
        found = measure_zeros(measured.source, measured.text, measured.calibration, names, report)
        show_zeros(found)
    elif part == "cuts":
        found = {}
        for name in args.cut:
            step = cut_of(name, measured.source.spec.num_layers)
            found[name] = measure_cut(measured, step, args.ways, models.part(name))
            show_cut(name, found[name])
    elif part == "bytes":
        found = measure_bytes(measured, models, args.cut, args.recipes, report)
    elif part == "cost":
        names = args.recipes or [*RECIPES]
        found = measure_cost(measured.source.path, names, args.samples, args.rounds, report)
        show_cost(found)
    else:
        spec = speed_spec(measured, args)
        found = {"rows": measure_speed(spec, args.threads, args.rounds, report_count)}
        show_speed(found["rows"])
    return found


def speed_spec(measured: Measured, args: argparse.Namespace) -> ModelSpec:
    """Returns the shape whose cuts are timed."""
    spec = measured.source.spec
    if args.shape is not None:
        spec = spec_from_config(dict(CONFIGS[args.shape]))
    return spec if args.shape_layers is None else shorter(spec, args.shape_layers)


def report_count(done: int, total: int) -> None:
    report("round", done / total)


def report(what: str, share: float) -> None:
    print(f"{share:4.0%} {what}", file=sys.stderr)


def show_layers(found: dict[str, Any]) -> None:
    table = Table("method", "sum of losses", "of magnitude", "seconds")
    for name in METHODS:
        own, base = found["sum"][name], found["sum"]["magnitude"]
        table.add_row(name, f"{own:.4g}", f"{own / base:.3f}", f"{found['seconds'][name]:.1f}")
    Console().print(table)
    Console().print(
        f"swaps lower Wanda's sum by {found['swaps_lower']:.1%}; ROSE is below SparseGPT on "
        f"{found['rose_below']:.0%} of {found['num_layers']} layers; the refit raised "
        f"{found['refit_raised']}"
    )


def show_zeros(found: dict[str, Any]) -> None:
    table = Table("recipe", "perplexity", "KL", "gap closed", "seconds")
    for name, own in found.items():
        pattern = name.split("-")[1] if "-" in name else ""
        baseline = f"magnitude-{pattern}"
        closed = f"{gap_closed(found, name, baseline):.0%}" if baseline in found else ""
        table.add_row(
            name,
            f"{own['perplexity']:.3f}",
            f"{own['kl_divergence'] or 0:.4f}",
            closed,
            f"{own.get('seconds', 0):.0f}",
        )
    Console().print(table)


def show_cut(name: str, found: dict[str, Any]) -> None:
    share = found["compensated"]["share"]
    table = Table("way", "KL", "perplexity", "minutes", title=f"{name}, -{share:.1%}")
    for way, own in found.items():
        table.add_row(
            way,
            f"{own['kl_divergence']:.4f}",
            f"{own['perplexity']:.3f}",
            f"{own['minutes']:.1f}",
        )
    Console().print(table)


def _refuse() -> LoadedExecutor:
    raise SystemExit("Set PAREDOWN_DATA: the figures are of the classic books.")


if __name__ == "__main__":
    main()
