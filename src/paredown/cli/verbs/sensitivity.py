"""`paredown sensitivity`: shows which parts of a model lose most by quantization or pruning."""

import argparse
from pathlib import Path

from paredown.cli.console import make_console
from paredown.cli.options.quantized import add_quantized_argument, named_model
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.sensitivity import legend, sensitivity_table
from paredown.compress.calibrate.activation_range import ACTIVATION_ESTIMATORS
from paredown.compress.quantize.kv_cache import KV_GRID_DTYPES
from paredown.evaluate.quality.task_quality import BATCH_TEXTS
from paredown.evaluate.tasks.glue import TASKS
from paredown.optimize.model_parts import PART_KINDS
from paredown.optimize.report_sensitivity import (
    DEFAULT_FORMAT,
    DEFAULT_PARTS,
    DEFAULT_TOKENS,
    SensitivityConfig,
    report_sensitivity,
)
from paredown.optimize.sensitivity import SensitivityResult
from paredown.optimize.sensitivity_texts import TaskConfig

EXAMPLES = """examples:
  paredown sensitivity
  paredown sensitivity my-model --format int3-g64 --by fused
  paredown sensitivity my-model --activations --grid int8-tensor --report my-model-sensitivity
  paredown sensitivity my-model --prune wanda-50 --by layer
  paredown sensitivity my-model --prune prune-ffn-25      # each layer's neurons, cut alone
  paredown sensitivity my-classifier --task glue-sst2 --activations --grid int8-tensor-asym \\
    --ranges minmax --layers 4,5
  paredown sensitivity my-model --kv int4     # which layers to except: serve --kv-dtype int4,0=bf16
"""
DEFAULT_GRID = "int8-tensor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--format", default=DEFAULT_FORMAT, help="format of the weights (default %(default)s)"
    )
    parser.add_argument(
        "--by",
        default=DEFAULT_PARTS,
        help=f"comma-separated parts: {', '.join(PART_KINDS)} (default %(default)s)",
    )
    parser.add_argument(
        "--head", action="store_true", help="measure the output layer too, as a part of its own"
    )
    parser.add_argument(
        "--activations",
        action="store_true",
        help="measure what rounding activations to --grid costs too",
    )
    parser.add_argument(
        "--grid",
        default=DEFAULT_GRID,
        help="grid of activations: int1 to int8, fp8_e4m3 or fp8_e5m2, then -tensor, -token or "
        "-gN, then -asym or nothing; or fp16, bf16 (default %(default)s)",
    )
    parser.add_argument(
        "--ranges",
        choices=ACTIVATION_ESTIMATORS,
        help="one static scale for each point of --activations, found by this estimator on "
        "training texts (default: scales are found as values come)",
    )
    parser.add_argument(
        "--layers",
        help="measure the points of --activations in these layers alone, as 4,5; everything is "
        "still all layers",
        metavar="N,N",
    )
    parser.add_argument(
        "--kv",
        choices=KV_GRID_DTYPES,
        help="measure keys and values in this format too, by layer (docs/methods/kv_cache.md)",
    )
    parser.add_argument(
        "--prune",
        help="measure pruning too, by a recipe that makes zeros (wanda-50), a cut of each layer's "
        'neurons or heads (prune-ffn-25, prune-heads-25), or "layers" for leaving each layer out',
        metavar="RECIPE",
    )
    _add_text_arguments(parser)
    parser.add_argument(
        "--report", type=Path, help="folder for the picture and the figures", metavar="FOLDER"
    )
    add_quantized_argument(parser)
    add_common_arguments(parser, threads=False)


def _add_text_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text",
        type=Path,
        help="UTF-8 text to predict, or the file or folder of --task (default: from "
        "$PAREDOWN_DATA, else sampled from the model)",
        metavar="FILE",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=DEFAULT_TOKENS,
        help="tokens of the text to predict (default %(default)s)",
        metavar="N",
    )
    parser.add_argument(
        "--task",
        choices=list(TASKS),
        help="task that an encoder is measured on in place of the prediction of a text",
    )
    parser.add_argument("--limit", type=int, help="so many rows of --task alone", metavar="N")
    parser.add_argument(
        "--batch",
        type=int,
        default=BATCH_TEXTS,
        help="texts of --task that are computed together (default %(default)s)",
        metavar="N",
    )


def run(args: argparse.Namespace) -> int:
    task = None
    if args.task is not None:
        task = TaskConfig(
            name=args.task, path=args.text, num_rows=args.limit, batch_texts=args.batch
        )
    config = SensitivityConfig(
        format=args.format,
        parts=args.by,
        with_output=args.head,
        activations=args.grid if args.activations else None,
        ranges=args.ranges,
        layers=args.layers,
        task=task,
        kv=args.kv,
        prune=args.prune,
        text=args.text if task is None else None,
        num_tokens=args.tokens,
        report=args.report,
    )
    with progress_bar("predicting") as bar:
        result = report_sensitivity(named_model(args), config, bar.show_count)
    if args.json:
        say_json(result.as_json())
        return 0
    _print(result, args.report)
    return 0


def _print(result: SensitivityResult, report: Path | None) -> None:
    console = make_console()
    console.print(sensitivity_table("weights", result.weights))
    if result.activations is not None:
        console.print(sensitivity_table("activations", result.activations))
    if result.kv is not None:
        console.print(sensitivity_table("keys and values", result.kv))
    if result.pruned is not None:
        console.print(sensitivity_table("pruned", result.pruned))
    console.print(legend(result.plain), style="dim")
    console.print(f"Protocol: {result.protocol}.", style="dim")
    for note in result.notes:
        console.print(f"note: {note}", style="yellow")
    if report is not None:
        console.print(f"report: {report / 'sensitivity.png'}")
