"""`paredown bench --sweep hidden`: the time of a layer's matrix products over the hidden size."""

import argparse
from pathlib import Path

from rich.table import Table

from paredown.cli.console import make_console
from paredown.cli.options.picture_path import check_picture_path
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.columns import add_columns
from paredown.evaluate.pictures.hidden_plot import write_hidden_sweep
from paredown.evaluate.speed.hidden_sweep import HiddenSweep, sweep_hidden
from paredown.kernels.probe import resolve_num_threads


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sweep, which needs no model")
    group.add_argument(
        "--sweep",
        choices=("hidden",),
        default=None,
        help="time the qkv, out, ff1, ff2 products over the hidden size, fit a quadratic to each",
    )
    group.add_argument("--sweep-weights", default="bf16", help="their format (default bf16)")
    group.add_argument("--sweep-tokens", type=int, default=1, help="tokens (default 1)")
    group.add_argument("--sweep-plot", type=Path, default=None, help="a picture, .png")


def run_sweep(args: argparse.Namespace) -> int:
    path: Path | None = args.sweep_plot
    check_picture_path(path, "--sweep-plot")
    with progress_bar("measuring") as bar:
        sweep = sweep_hidden(
            format_name=args.sweep_weights,
            num_tokens=args.sweep_tokens,
            num_threads=resolve_num_threads(args.threads),
            on_progress=bar.show_count,
        )
    if path is not None:
        write_hidden_sweep(sweep, path)
    if args.json:
        say_json(sweep.as_json())
    else:
        console = make_console()
        console.print(
            f"microseconds over the hidden size d, {sweep.format}; tokens: {sweep.num_tokens}, "
            f"threads: {sweep.num_threads}"
        )
        console.print(_table(sweep))
    return 0


def _table(sweep: HiddenSweep) -> Table:
    table = Table()
    add_columns(table, ("d", *(fit.group for fit in sweep.fits)))
    for index, (hidden, _) in enumerate(sweep.fits[0].points):
        times = (f"{fit.points[index][1] * 1e6:,.1f}" for fit in sweep.fits)
        table.add_row(f"{hidden:,}", *times)
    table.add_section()
    for row, label in enumerate(("us", "us times d", "us times d²")):
        table.add_row(label, *(f"{fit.coefficients[row] * 1e6:.3g}" for fit in sweep.fits))
    table.add_row("mean error", *(f"{fit.mean_error:.0%}" for fit in sweep.fits))
    return table
