"""Measures what GPTQ loses on a linear layer that saw few tokens, and how far to shrink its Hessian
towards the identity (compress/calibrate/expert_inputs.py).

    python -m benchmarks.few_tokens --data $PAREDOWN_DATA [--json]

Inputs of one layer of a model without experts stand for those of an expert: some of the first half
of them are shown, the loss tr(D H D^T) is taken with H of the other half, as a share of what round
to nearest loses.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from paredown.compress.calibrate.expert_inputs import SHRINKAGE, shrunk
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.method import LayerTarget, Moments
from paredown.compress.quantize.rtn import RTN
from paredown.evaluate.texts.text import DATA_TEXT, choose_text
from paredown.executors.protocol import LoadedExecutor
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import INPUT_POINTS
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

NUM_TOKENS = (0, 4, 32, 128, 384, 896, 1792, 3584, 7168)
SHRINKAGES = (0.0, 0.1, 0.3, SHRINKAGE, 1.0, 3.0)
ROLES = ("gate", "o", "down")
WINDOW_TOKENS = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--data", type=Path, required=True, help="what $PAREDOWN_DATA names")
    parser.add_argument("--layer", type=int, default=2)
    parser.add_argument("--format", default="int4-g128")
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    checkpoint = Checkpoint.open(resolve_model(args.model))
    decoder = Decoder.from_checkpoint(checkpoint)
    layer = decoder.layers[args.layer]
    assert isinstance(layer, Layer)
    inputs = read_inputs(checkpoint, decoder, layer, args)
    target = LayerTarget(spec=FORMATS[args.format], scale_dtype="bf16")
    found = {
        role: losses(layer.get_parameter(f"{role}.weight").data, inputs[INPUT_POINTS[role]], target)
        for role in ROLES
    }
    if args.json:
        print(json.dumps(found, indent=2))
        return
    for role, rows in found.items():
        table = Table("shrinkage", *map(str, NUM_TOKENS), title=f"{role}, tokens shown")
        for shrinkage, row in rows.items():
            table.add_row(shrinkage, *(f"{loss:.2f}" for loss in row))
        Console().print(table)


def read_inputs(
    checkpoint: Checkpoint, decoder: Decoder, layer: Layer, args: argparse.Namespace
) -> dict[str, Tensor]:
    """Returns inputs [N, I] by point, from the beginning of valid.txt."""
    path = (args.data / DATA_TEXT).with_name("valid.txt")
    tokenizer = Tokenizer.open(checkpoint.path)
    text = choose_text(path, tokenizer, args.tokens, _no_executor, WINDOW_TOKENS)
    seen: dict[str, list[Tensor]] = {}

    def tap(point: str, x: Tensor) -> Tensor:
        if point in INPUT_POINTS.values():
            seen.setdefault(point, []).append(x.flatten(0, -2))
        return x

    layer.tap = tap
    with torch.inference_mode():
        for window in text.windows:
            decoder(torch.tensor([window.inputs]))
    return {point: torch.cat(parts) for point, parts in seen.items()}


def losses(weight_OI: Tensor, x_NI: Tensor, target: LayerTarget) -> dict[str, list[float]]:
    """Returns the losses by shrinkage, for each of NUM_TOKENS."""
    shown_NI, held_out_NI = x_NI.chunk(2)
    hessian_II = 2 / len(held_out_NI) * held_out_NI.T @ held_out_NI
    order = torch.randperm(len(shown_NI), generator=torch.Generator().manual_seed(0))
    num_columns = weight_OI.shape[1]

    def loss(moments: Moments | None) -> float:
        quantizer = RTN(range="mse") if moments is None else GPTQ()
        done = quantizer.quantize(weight_OI, target, moments)
        change_OI = done.values() - weight_OI
        return float((change_OI @ hessian_II * change_OI).sum())

    nearest = loss(None)
    found: dict[str, list[float]] = {}
    for shrinkage in SHRINKAGES:
        for num_tokens in NUM_TOKENS:
            few_NI = shown_NI[order[:num_tokens]]
            seen = Moments(
                hessian_II=2 / max(1, num_tokens) * few_NI.T @ few_NI, num_rows=num_tokens
            )
            moments = shrunk(seen if num_tokens else None, num_columns, shrinkage)
            found.setdefault(f"{shrinkage:g}", []).append(loss(moments) / nearest)
    return found


def _no_executor() -> LoadedExecutor:
    raise AssertionError("the text is a file")


if __name__ == "__main__":
    main()
