"""`paredown sensitivity`: shows which parts of a model lose most by quantization or pruning."""

import argparse
from pathlib import Path

from rich import box
from rich.table import Table

from paredown.cli.console import make_console
from paredown.cli.options.quantized import add_quantized_argument, named_model
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.compress.quantize.kv_cache import KV_GRID_DTYPES
from paredown.optimize.model_parts import PART_KINDS
from paredown.optimize.report_sensitivity import (
    DEFAULT_FORMAT,
    DEFAULT_PARTS,
    DEFAULT_TOKENS,
    SensitivityConfig,
    report_sensitivity,
)
from paredown.optimize.sensitivity import SensitivityResult, SensitivityTable, recovered

EXAMPLES = """examples:
  paredown sensitivity
  paredown sensitivity my-model --format int3-g64 --by fused
  paredown sensitivity my-model --activations --grid int8-tensor --report my-model-sensitivity
  paredown sensitivity my-model --prune wanda-50 --by layer
  paredown sensitivity my-model --prune prune-ffn-25      # each layer's neurons, cut alone
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
    parser.add_argument(
        "--report", type=Path, help="folder for the picture and the figures", metavar="FOLDER"
    )
    add_quantized_argument(parser)
    add_common_arguments(parser, threads=False)


def run(args: argparse.Namespace) -> int:
    config = SensitivityConfig(
        format=args.format,
        parts=args.by,
        with_output=args.head,
        activations=args.grid if args.activations else None,
        kv=args.kv,
        prune=args.prune,
        text=args.text,
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
    console.print(_table("weights", result.weights))
    if result.activations is not None:
        console.print(_table("activations", result.activations))
    if result.kv is not None:
        console.print(_table("keys and values", result.kv))
    if result.pruned is not None:
        console.print(_table("pruned", result.pruned))
    console.print(
        "KL divergence to the model as it is, nats per token. all but it: everything else is "
        "quantized or pruned. won back: the share of everything's loss that leaving it out saves. "
        "ppl and top-1: of the part alone.",
        style="dim",
    )
    console.print(f"Protocol: {result.protocol}.", style="dim")
    for note in result.notes:
        console.print(f"note: {note}", style="yellow")
    if report is not None:
        console.print(f"report: {report / 'sensitivity.png'}")


def _table(what: str, found: SensitivityTable) -> Table:
    table = Table(
        title=f"{what} in {found.what}", title_justify="left", box=box.SIMPLE_HEAD, padding=0
    )
    headings = ["part", "weights", "KL alone", "all but it", "won back", "ppl", "top-1"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "part" else "right", no_wrap=True)
    whole = found.everything
    assert whole.kl_divergence is not None
    assert whole.top1_agreement is not None
    before = None
    for row in found.rows:
        assert row.alone.kl_divergence is not None
        assert row.alone.top1_agreement is not None
        assert row.all_but.kl_divergence is not None
        if before is not None and row.kind != before:
            table.add_section()
        before = row.kind
        share = recovered(row, found) / whole.kl_divergence if whole.kl_divergence else 0.0
        table.add_row(
            row.name,
            f"{row.num_weights:,}" if row.num_weights else "",
            f"{row.alone.kl_divergence:.6f}",
            f"{row.all_but.kl_divergence:.6f}",
            f"{share:.1%}",
            f"{row.alone.perplexity:.3f}",
            f"{row.alone.top1_agreement:.1%}",
        )
    table.add_section()
    table.add_row(
        "everything",
        "",
        f"{whole.kl_divergence:.6f}",
        "",
        "",
        f"{whole.perplexity:.3f}",
        f"{whole.top1_agreement:.1%}",
        style="bold",
    )
    return table
