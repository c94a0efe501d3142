"""`paredown mixed`: chooses a width for each linear layer under a budget and writes a recipe
file."""

import argparse
from pathlib import Path

from rich import box
from rich.table import Table

from paredown.cli.console import make_console
from paredown.cli.options.quantized import add_quantized_argument, named_model
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.compress.methods import QUANTIZERS
from paredown.optimize.mixed_precision import Assignment
from paredown.optimize.write_mixed_recipe import (
    DEFAULT_BITS,
    DEFAULT_TOKENS,
    MixedConfig,
    write_mixed_recipe,
)
from paredown.shell_word import shell_path
from paredown.units import MEGA, format_bytes

EXAMPLES = """examples:
  paredown mixed -o mixed.yaml                                    # 4 bits on average
  paredown mixed my-model -o mixed.yaml --average-bits 3.5 --method gptq
  paredown mixed my-model -o mixed.yaml --megabytes 300
  paredown compress my-model -o my-model-mixed --recipe mixed.yaml

Each linear layer's loss is measured at 2 to 8 bits; the widths with the least sum of losses under
the budget are written as a recipe (docs/methods/mixed_precision.md).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="recipe file to write", metavar="FILE"
    )
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument(
        "--average-bits",
        type=float,
        default=DEFAULT_BITS,
        help="bits of a code, on average over the weights of linear layers (default %(default)s)",
        metavar="N",
    )
    budget.add_argument(
        "--megabytes",
        type=float,
        help="size of the linear layers with scales and zero points, in place of bits",
        metavar="MB",
    )
    parser.add_argument(
        "--group-size",
        type=int,
        default=128,
        help="columns that share a scale: 32, 64 or 128 (default 128)",
        metavar="N",
    )
    parser.add_argument(
        "--method",
        choices=list(QUANTIZERS),
        default="gptq",
        help="method that the recipe names (default gptq); losses are those of rounding to nearest",
    )
    parser.add_argument(
        "--head",
        action="store_true",
        help="choose a width for the output layer too, which is left in floats otherwise",
    )
    parser.add_argument(
        "--text",
        type=Path,
        help="UTF-8 text to predict (default: from $PAREDOWN_DATA, else sampled from the model)",
        metavar="FILE",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=DEFAULT_TOKENS,
        help="tokens of the text to predict (default %(default)s)",
        metavar="N",
    )
    add_quantized_argument(parser)
    add_common_arguments(parser, threads=False)


def run(args: argparse.Namespace) -> int:
    config = MixedConfig(
        average_bits=args.average_bits,
        max_bytes=None if args.megabytes is None else int(args.megabytes * MEGA),
        group_size=args.group_size,
        method=args.method,
        with_output=args.head,
        text=args.text,
        num_tokens=args.tokens,
    )
    with progress_bar("measuring losses") as bar:
        assignment = write_mixed_recipe(named_model(args), args.output, config, bar.show_count)
    if args.json:
        say_json(_as_json(assignment, args.output))
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
    console = make_console()
    console.print(table)
    console.print(
        f"{assignment.average_bits:.2f} bits per weight on average, "
        f"{format_bytes(assignment.stored_bytes)} for the linear layers, KL divergence of about "
        f"{assignment.predicted_loss:.4f} nats if rounded to nearest"
    )
    command = f"paredown compress MODEL -o OUT --recipe {shell_path(output)}"
    console.print(f"next: {command}", soft_wrap=True)
