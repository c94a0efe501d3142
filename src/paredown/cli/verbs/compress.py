"""`paredown compress`: applies a recipe, writes a standard checkpoint folder and measures its
loss."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from paredown.cli.console import make_console
from paredown.cli.options.activations import add_activations_argument
from paredown.cli.options.calibration import add_calibration_arguments, calibration_config
from paredown.cli.options.quantized import add_quantized_argument, named_model
from paredown.cli.options.removal import add_removal_arguments, with_removal_arguments
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.options.training import add_training_arguments, with_training_arguments
from paredown.cli.options.verification import add_verification_arguments, read_verify_config
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.notes import join_notes
from paredown.cli.tables.verification import print_verification
from paredown.compress.changed_recipe import with_inputs
from paredown.compress.compress_result import CompressResult
from paredown.compress.recipe_names import EXPLAINED, SYNTAX
from paredown.jobs.compress import as_recipe, compress_and_verify
from paredown.units import format_bytes

EXAMPLES = f"""{EXPLAINED}
examples:
  paredown compress -o small
  paredown compress my-model -o my-model-int8 --recipe int8
  paredown compress HuggingFaceTB/SmolLM2-135M-Instruct -o smollm2-int8 --recipe int8
  paredown compress my-model -o my-model-int4 --recipe int4-g32-asym --json
  paredown compress my-model -o my-model-small --recipe llm-int8
  paredown compress my-model -o my-model-gptq --recipe gptq-int4-g128
  paredown compress my-model -o my-model-awq --recipe awq-gptq-int4-g128 \\
      --calibration-text my.txt
  paredown compress my-model -o my-model-mixed --recipe mixed.yaml
  paredown compress my-model -o my-model-sparse --recipe sparsegpt-2of4-int8
  paredown compress my-model -o my-model-smaller --recipe prune-ffn-25-int4-g128 \\
      --recover-minutes 10
  paredown compress my-model -o my-model-int3 --recipe qad-int3-g64 --train-minutes 20
  paredown compress my-model -o my-model-int4 --text novel.txt --tokens 65536
  paredown compress model-q8_0.gguf -o small --recipe gptq-int4-g128-g64-g32 --from-quantized

What was written is measured beside the original. verification.json in the folder
keeps the figures, and what `paredown serve` checks when it loads the checkpoint.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="folder to write; must not exist",
        metavar="OUT",
    )
    parser.add_argument(
        "--recipe",
        default="int4-g128",
        help=f"a YAML file (docs/guide/recipes.md), or a name: {SYNTAX} (default: int4-g128)",
    )
    add_activations_argument(parser)
    add_removal_arguments(parser)
    add_training_arguments(parser)
    add_calibration_arguments(parser)
    add_verification_arguments(parser)
    add_quantized_argument(parser)
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    recipe = with_removal_arguments(as_recipe(args.recipe), args)
    recipe = with_training_arguments(recipe, args)
    if args.activations is not None:
        recipe = with_inputs(recipe, args.activations)
    with progress_bar(recipe.name) as bar:
        made = compress_and_verify(
            named_model(args),
            args.output,
            recipe,
            calibration=calibration_config(args),
            verify=read_verify_config(args),
            num_threads=args.threads,
            on_progress=bar.show_share,
        )
    if args.json:
        say_json(made.as_json())
        return 0
    console = make_console()
    _print(console, made.written, made.source_bytes)
    print_verification(console, made)
    return 0


def _print(console: Console, result: CompressResult, source_bytes: int) -> None:
    console.print(
        f"{result.path}: {result.name}, {format_bytes(result.file_bytes)} "
        f"(was {format_bytes(source_bytes)}), {result.bits_per_weight:.2f} bits per weight"
    )
    if result.num_quantized:
        console.print(_scheme_table(result))
        console.print(
            f"{result.num_quantized} linear layers quantized, {len(result.kept)} tensors kept "
            "(embeddings, norms, what the recipe leaves out)"
        )
    if result.sparsity is not None:
        sparsity = result.sparsity
        console.print(
            f"{100 * sparsity.share:.2f} % of the weights of {len(sparsity.weights)} pruned linear "
            "layers are zero"
        )
    if result.calibration is not None:
        console.print(f"calibrated on {result.calibration}{_predicted(result)}")
    if result.untied:
        console.print("the output layer was tied to the embedding and is now stored beside it")
    for name, count in result.clamped.items():
        console.print(f"clamped: {count} values of {name} are beyond the range of {result.name}")
    for note in join_notes(result.notes):
        console.print(f"note: {note}", style="yellow")


def _predicted(result: CompressResult) -> str:
    """Says what the last pass took at its peak, where it calibrated."""
    if result.predicted_bytes is None or result.predicted_disk_bytes is None:
        return ""
    return (
        f"; predicted at the peak: {format_bytes(result.predicted_bytes)} of memory, "
        f"{format_bytes(result.predicted_disk_bytes)} of activations on disk"
    )


def _scheme_table(result: CompressResult) -> Table:
    table = Table("layers", "linear layers", "method", "format")
    for row in result.schemes:
        table.add_row(row.layers, row.roles, row.method, row.format)
    return table
