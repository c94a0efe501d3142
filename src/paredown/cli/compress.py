"""`paredown compress`: one recipe, one standard checkpoint folder."""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from paredown.compress.compress import CompressResult, compress
from paredown.compress.recipe_names import SYNTAX, find_recipe
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.units import format_bytes

EXAMPLES = """examples:
  paredown compress -o small
  paredown compress my-model -o my-model-int8 --recipe int8
  paredown compress my-model -o my-model-int4 --recipe int4-g32-asym --json
  paredown compress my-model -o my-model-small --recipe int4-g128-head-int8   # output layer too
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("model", nargs="?", help="checkpoint folder (default: the packaged model)")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="folder to write; must not exist"
    )
    parser.add_argument("--recipe", default="int4-g128", help=f"{SYNTAX} (default: int4-g128)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    find_recipe(args.recipe)
    source = Checkpoint.open(resolve_model(args.model))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"compressing to {args.recipe}", total=len(source.tensors))
        result = compress(
            source,
            args.output,
            args.recipe,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    if args.json:
        print(json.dumps(_as_json(result), indent=2))
        return 0
    console = Console()
    console.print(
        f"{result.path}: {result.name}, {format_bytes(result.file_bytes)} "
        f"(was {format_bytes(source.file_bytes)}), {result.bits_per_weight:.2f} bits per weight"
    )
    if result.num_quantized:
        console.print(
            f"{result.num_quantized} linear layers quantized, {len(result.kept)} tensors kept "
            "(embeddings, norms, what the recipe leaves out)"
        )
    if result.untied:
        console.print("the output layer was tied to the embedding and is now stored beside it")
    for name, count in result.clamped.items():
        console.print(f"clamped: {count} values of {name} are beyond the range of {result.name}")
    return 0


def _as_json(result: CompressResult) -> dict[str, object]:
    return {
        "name": result.name,
        "path": str(result.path),
        "bits_per_weight": result.bits_per_weight,
        "file_bytes": result.file_bytes,
        "num_quantized": result.num_quantized,
        "kept": list(result.kept),
        "untied": result.untied,
        "clamped": result.clamped,
    }
