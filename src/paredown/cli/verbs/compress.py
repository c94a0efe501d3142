"""`paredown compress`: one recipe, one standard checkpoint folder, and what it cost."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from paredown.cli.options.calibration import add_calibration_arguments, read_calibration
from paredown.cli.tables.notes import join_notes
from paredown.cli.verification import (
    Verifier,
    add_verification_arguments,
    print_verification,
    verification_json,
)
from paredown.compress.compress import CompressResult, check_recipe, compress
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_file import read_recipe
from paredown.compress.recipe_names import EXPLAINED, SYNTAX, find_recipe
from paredown.kernels.probe import resolve_num_threads
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.output_folder import check_output_folder
from paredown.models.resolve import resolve_model
from paredown.units import format_bytes

EXAMPLES = f"""{EXPLAINED}
examples:
  paredown compress -o small
  paredown compress my-model -o my-model-int8 --recipe int8
  paredown compress my-model -o my-model-int4 --recipe int4-g32-asym --json
  paredown compress my-model -o my-model-small --recipe llm-int8
  paredown compress my-model -o my-model-gptq --recipe gptq-int4-g128
  paredown compress my-model -o my-model-awq --recipe awq-gptq-int4-g128 \\
      --calibration-text my.txt
  paredown compress my-model -o my-model-mixed --recipe mixed.yaml
  paredown compress my-model -o my-model-int4 --text novel.txt --tokens 65536

What was written is measured beside the original. verification.json in the folder
keeps the figures, and what `paredown serve` checks when it loads the checkpoint.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "model", nargs="?", help="folder or .gguf file (default: the packaged model)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="folder to write; must not exist"
    )
    parser.add_argument(
        "--recipe",
        default="int4-g128",
        help=f"a YAML file (docs/recipes.md), or a name: {SYNTAX} (default: int4-g128)",
    )
    add_calibration_arguments(parser)
    add_verification_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    recipe = _recipe(args.recipe)
    check_output_folder(args.output)
    resolve_num_threads(args.threads)
    source = Checkpoint.open(resolve_model(args.model))
    # Reading a text may mean to have the model write one: what cannot work is told before.
    check_recipe(source, recipe)
    calibration = read_calibration(source, args) if recipe.needs_calibration else None
    with _progress() as progress:
        task = progress.add_task(recipe.name, total=1.0)

        def report(what: str, share: float) -> None:
            progress.update(task, description=what, completed=share)

        verifier = None if args.no_verify else Verifier(source, recipe.name, args, report)
        result = compress(
            source,
            args.output,
            recipe,
            calibration=calibration,
            on_progress=report,
            finish=verifier,
        )
    if args.json:
        print(json.dumps(_as_json(result) | verification_json(verifier), indent=2))
        return 0
    _print(Console(), result, source)
    print_verification(Console(), verifier)
    return 0


def _print(console: Console, result: CompressResult, source: Checkpoint) -> None:
    console.print(
        f"{result.path}: {result.name}, {format_bytes(result.file_bytes)} "
        f"(was {format_bytes(source.file_bytes)}), {result.bits_per_weight:.2f} bits per weight"
    )
    if result.num_quantized:
        console.print(_scheme_table(result))
        console.print(
            f"{result.num_quantized} linear layers quantized, {len(result.kept)} tensors kept "
            "(embeddings, norms, what the recipe leaves out)"
        )
    if result.calibration is not None:
        assert result.predicted_bytes is not None
        assert result.predicted_disk_bytes is not None
        console.print(
            f"calibrated on {result.calibration}; predicted at the peak: "
            f"{format_bytes(result.predicted_bytes)} of memory, "
            f"{format_bytes(result.predicted_disk_bytes)} of activations on disk"
        )
    if result.untied:
        console.print("the output layer was tied to the embedding and is now stored beside it")
    for name, count in result.clamped.items():
        console.print(f"clamped: {count} values of {name} are beyond the range of {result.name}")
    for note in join_notes(result.notes):
        console.print(f"note: {note}", style="yellow")


def _recipe(name: str) -> Recipe:
    path = Path(name)
    return read_recipe(path) if path.suffix in (".yaml", ".yml") else find_recipe(name)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _scheme_table(result: CompressResult) -> Table:
    table = Table("layers", "linear layers", "method", "format")
    for row in result.schemes:
        table.add_row(row.layers, row.roles, row.method, row.format)
    return table


def _as_json(result: CompressResult) -> dict[str, object]:
    return asdict(result) | {"path": str(result.path)}
