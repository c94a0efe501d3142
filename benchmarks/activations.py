"""Measures what rounded inputs of linear layers, and rounded keys and values, cost a model.

    python -m benchmarks.activations --data $PAREDOWN_DATA [--json]

Weights are unchanged. Static scales are calibrated on the beginning of valid.txt. Quality is
measured on the beginning of test.txt, through the PyTorch decoder (evaluate/quality/simulated.py).
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from paredown.compress.activations import ActivationGrid, StaticScale, parse_grid, round_activations
from paredown.compress.calibrate.activation_range import ActivationEstimator, ActivationRange
from paredown.compress.quantize.kv_cache import (
    KV_GRID_DTYPES,
    KVRange,
    StaticTaps,
    dynamic_taps,
)
from paredown.evaluate.quality.simulated import PointTap, Variant, applied, measure_variants
from paredown.evaluate.texts.text import DATA_TEXT, EvalText, choose_text
from paredown.executors.protocol import LoadedExecutor
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import INPUT_POINTS
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

WINDOW_TOKENS = 512
DYNAMIC = (
    "int8-token",
    "int8-g128",
    "int8-tensor",
    "int8-token-asym",
    "int6-token",
    "int4-token",
    "int4-token-asym",
    "int4-g32",
    "fp8_e4m3-token",
    "fp8_e4m3-tensor",
    "fp8_e5m2-token",
)
STATIC = ("int8-tensor", "int8-tensor-asym", "fp8_e4m3-tensor")
ESTIMATORS: tuple[ActivationEstimator, ...] = ("minmax", "percentile", "mse")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--data", type=Path, required=True, help="what $PAREDOWN_DATA names")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--calibration-tokens", type=int, default=4096)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = resolve_model(args.model)
    decoder = Decoder.from_checkpoint(Checkpoint.open(folder))
    tokenizer = Tokenizer.open(folder)
    test = args.data / DATA_TEXT

    def text(path: Path, num_tokens: int) -> EvalText:
        return choose_text(path, tokenizer, num_tokens, _no_executor, WINDOW_TOKENS)

    ranges, kv_ranges = calibrate(
        decoder, text(test.with_name("valid.txt"), args.calibration_tokens)
    )
    variants = dict(input_variants(decoder, ranges)) | dict(kv_variants(decoder, kv_ranges))
    whole = text(test, args.tokens)
    qualities, plain = measure_variants(decoder, [*variants.values()], whole, on_progress=_show)
    rows = [{"name": "as it is", "kl": None, "top1": None, "perplexity": plain.perplexity}]
    for name, quality in zip(variants, qualities, strict=True):
        rows.append(
            {
                "name": name,
                "kl": quality.kl_divergence,
                "top1": quality.top1_agreement,
                "perplexity": quality.perplexity,
            }
        )
    if args.json:
        print(json.dumps({"rows": rows, "protocol": whole.protocol}, indent=2))
        return
    for row in rows:
        figures = (f"{one:>12.5g}" for one in row.values() if isinstance(one, float))
        print(f"{row['name']:<36}", *figures)
    print(whole.protocol)


def calibrate(decoder: Decoder, text: EvalText) -> tuple[dict[str, ActivationRange], list[KVRange]]:
    """Returns the ranges of linear layers' inputs by point, and of each layer's keys and values."""
    ranges = {point: ActivationRange() for point in _input_points(decoder)}
    kv_ranges = [KVRange() for _ in decoder.layers]
    taps: dict[str, PointTap] = {point: _observer(one) for point, one in ranges.items()}
    for layer, one in enumerate(kv_ranges):
        taps |= {f"layers.{layer}.{point}": partial(one.tap, point) for point in ("k", "v")}
    with torch.inference_mode(), applied(decoder, Variant(taps=taps)):
        for window in text.windows:
            decoder(torch.tensor([window.inputs]))
    return ranges, kv_ranges


def input_variants(
    decoder: Decoder, ranges: dict[str, ActivationRange]
) -> Iterator[tuple[str, Variant]]:
    for name in DYNAMIC:
        tap = _rounding(parse_grid(name), None)
        yield f"inputs {name}", Variant(taps=dict.fromkeys(_input_points(decoder), tap))
    for name in STATIC:
        grid = parse_grid(name)
        for estimator in ESTIMATORS:
            taps = {
                point: _rounding(grid, one.static_scale(grid, estimator))
                for point, one in ranges.items()
            }
            yield f"inputs {name} static {estimator}", Variant(taps=taps)


def kv_variants(decoder: Decoder, ranges: list[KVRange]) -> Iterator[tuple[str, Variant]]:
    for dtype in KV_GRID_DTYPES:
        yield f"cache {dtype}", Variant(taps=dynamic_taps(dtype, len(decoder.layers)))
        for share in ("layer", "head"):
            scales = [one.scales(dtype, share) for one in ranges]
            taps = StaticTaps(dtype=dtype, scales=scales).by_point()
            yield f"cache {dtype} static per {share}", Variant(taps=taps)


def _input_points(decoder: Decoder) -> list[str]:
    return [
        f"layers.{layer}.{point}"
        for layer in range(len(decoder.layers))
        for point in dict.fromkeys(INPUT_POINTS.values())
    ]


def _observer(one: ActivationRange) -> PointTap:
    def look(x: Tensor) -> Tensor:
        one.observe(x)
        return x

    return look


def _rounding(grid: ActivationGrid, static: StaticScale | None) -> Callable[[Tensor], Tensor]:
    return lambda x: round_activations(x, grid, static).values


def _show(done: int, total: int) -> None:
    print(f"\r{done} of {total}", end="" if done < total else "\n", file=sys.stderr, flush=True)


def _no_executor() -> LoadedExecutor:
    raise AssertionError("the texts are files")


if __name__ == "__main__":
    main()
