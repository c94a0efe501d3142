"""`paredown mixed`: a width for each linear layer under a budget, as a recipe file."""

import argparse
import json
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from paredown.compress.methods import QUANTIZERS
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe_file import write_recipe
from paredown.errors import ConfigError, OutputError
from paredown.evaluate.texts.validation_text import choose_validation_text
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.optimize.mixed_precision import (
    Assignment,
    assign_average_bits,
    assign_bytes,
    formats_of_widths,
    measure_choices,
)
from paredown.optimize.sensitivity import WINDOW_TOKENS
from paredown.units import MEGA, format_bytes

EXAMPLES = """examples:
  paredown mixed -o mixed.yaml                                    # 4 bits on average
  paredown mixed my-model -o mixed.yaml --average-bits 3.5 --method gptq
  paredown mixed my-model -o mixed.yaml --megabytes 300
  paredown compress my-model -o my-model-mixed --recipe mixed.yaml

Each linear layer's loss is measured at 2 to 8 bits; the widths with the least sum of losses under
the budget are written as a recipe (docs/mixed_precision.md).
"""
DEFAULT_BITS = 4.0
DEFAULT_TOKENS = 2048


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("model", nargs="?", help="checkpoint folder (default: the packaged model)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="recipe file to write")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument(
        "--average-bits",
        type=float,
        default=DEFAULT_BITS,
        help="of codes per weight of the linear layers (default %(default)s)",
    )
    budget.add_argument(
        "--megabytes", type=float, help="for the linear layers, scales and zero points counted"
    )
    parser.add_argument("--group-size", type=int, default=128, help="32, 64 or 128 (default 128)")
    parser.add_argument(
        "--method",
        choices=list(QUANTIZERS),
        default="gptq",
        help="that the recipe names (default gptq); losses are those of rounding to nearest",
    )
    parser.add_argument(
        "--head", action="store_true", help="the output layer too (it is left in floats otherwise)"
    )
    parser.add_argument("--text", type=Path, help="UTF-8 text to predict")
    parser.add_argument(
        "--tokens", type=int, default=DEFAULT_TOKENS, help="of the text (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    if args.output.suffix not in (".yaml", ".yml"):
        raise ConfigError(
            "a recipe file's name ends in .yaml",
            seen=args.output,
            remedy=f"Name it {args.output.with_suffix('.yaml')}.",
        )
    if args.output.exists():
        raise OutputError(
            f"{args.output} exists already", seen="a file", remedy="Choose another name."
        )
    specs, quantizer = formats_of_widths(args.group_size), QUANTIZERS[args.method]()
    for spec in specs:
        quantizer.check(spec)
    checkpoint = Checkpoint.open(resolve_model(args.model))
    text = choose_validation_text(checkpoint, args.text, args.tokens, WINDOW_TOKENS)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring losses", total=None)
        found = measure_choices(
            checkpoint,
            text,
            specs,
            RTN(),
            lambda done, total: progress.update(task, completed=done, total=total),
            head=args.head,
        )
    if args.megabytes is not None:
        assignment = assign_bytes(found, int(args.megabytes * MEGA))
    else:
        assignment = assign_average_bits(found, args.average_bits)
    recipe = assignment.recipe(checkpoint, quantizer, args.output.stem)
    write_recipe(recipe, args.output)
    if args.json:
        print(json.dumps(_as_json(assignment, args.output), indent=2))
        return 0
    _print(assignment, args.output)
    return 0


def _as_json(assignment: Assignment, output: Path) -> dict[str, object]:
    return {
        "output": str(output),
        "average_bits": assignment.average_bits,
        "stored_bytes": assignment.stored_bytes,
        "predicted_kl": assignment.predicted_loss,
        "formats": {
            part.name: choice.spec.name
            for part, choice in zip(assignment.parts, assignment.chosen, strict=True)
        },
    }


def _print(assignment: Assignment, output: Path) -> None:
    table = Table("linear layers", "format", "loss alone, nats", box=box.SIMPLE)
    for part, choice in zip(assignment.parts, assignment.chosen, strict=True):
        table.add_row(part.name, choice.spec.name, f"{choice.loss:.5f}")
    console = Console()
    console.print(table)
    console.print(
        f"{assignment.average_bits:.2f} bits per weight on average, "
        f"{format_bytes(assignment.stored_bytes)} for the linear layers, KL divergence of about "
        f"{assignment.predicted_loss:.4f} nats if rounded to nearest"
    )
    console.print(f"next: paredown compress MODEL -o OUT --recipe {output}")
