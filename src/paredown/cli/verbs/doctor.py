"""`paredown doctor`: shows the machine, the chosen kernels with reasons, and the measured
limits."""

import argparse
from collections.abc import Iterable
from dataclasses import asdict

from rich.table import Table

from paredown.cli.console import make_console
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.tables.columns import add_columns
from paredown.cli.verbs.doctor_sweep import keep_sweep, sweep_table
from paredown.kernels.forms import KernelUse, kernel_uses
from paredown.kernels.isa import explain_isa, supported_isas, unavailable_isas
from paredown.kernels.probe import measure_machine
from paredown.kernels.thread_plan import ThreadPlan
from paredown.units import format_bytes, format_rate

EXAMPLES = """examples:
  paredown doctor
  paredown doctor --threads 1 --json
  PAREDOWN_ISA=avx2 paredown doctor
  paredown doctor --sweep
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="measure steps of made-up models too (a few minutes), and keep what they tell for "
        "`paredown inspect` and `paredown plan`; nothing else should run meanwhile",
    )
    add_common_arguments(parser, model=None)


def run(args: argparse.Namespace) -> int:
    machine = measure_machine(args.threads)
    threads = ThreadPlan.resolve(args.threads)
    kernels = kernel_uses(machine.isa)
    swept = keep_sweep(machine) if args.sweep else None
    if args.json:
        result = {
            "machine": asdict(machine),
            "threads": asdict(threads),
            "supported_isas": supported_isas(),
            "unavailable_isas": unavailable_isas(),
            "isa_reason": explain_isa(),
            "kernels": [asdict(row) for row in kernels],
        } | ({} if swept is None else {"calibration": swept.as_json()})
        say_json(result)
        return 0
    limits = Table(title="Machine", show_header=False)
    add_columns(limits, ("", "value"), left=("", "value"))
    for label, value in (
        ("processor", machine.name),
        ("cores, threads used", f"{machine.num_cores}, {machine.num_threads}"),
        ("threads of a model", f"{threads.explained()}, unless --decode-threads says otherwise"),
        ("memory", format_bytes(machine.memory_bytes)),
        ("instruction set", explain_isa()),
        ("memory bandwidth", format_rate(machine.bandwidth_bytes_per_s, "B/s")),
        ("int8 peak", format_rate(machine.int8_ops_per_s, "op/s")),
        ("bf16 peak", format_rate(machine.bf16_flops_per_s, "FLOP/s")),
        ("fp32 peak", format_rate(machine.fp32_flops_per_s, "FLOP/s")),
    ):
        limits.add_row(label, value)
    for name, reason in unavailable_isas().items():
        limits.add_row(f"not available: {name}", reason)
    console = make_console()
    console.print(limits)
    console.print(_kernel_table(kernels))
    if swept is not None:
        console.print(sweep_table(swept))
    return 0


def _kernel_table(kernels: Iterable[KernelUse]) -> Table:
    """Returns the kernel table; formats with the same kernels share a row."""
    served: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for use in kernels:
        served.setdefault((use.operation, use.dtype), []).append((use.tokens, use.form))
    formats: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for (operation, dtype), forms in served.items():
        formats.setdefault((operation, tuple(forms)), []).append(dtype)
    table = Table(title="Kernels")
    headings = ("operation", "weights or pages", "tokens", "kernel")
    add_columns(table, headings, left=headings)
    for (operation, ranges), dtypes in formats.items():
        first = (operation, ", ".join(dtypes))
        for tokens, form in ranges:
            table.add_row(*first, tokens, form)
            first = ("", "")
    return table
