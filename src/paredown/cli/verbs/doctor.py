"""`paredown doctor`: the machine, the kernels chosen and why, and the limits measured."""

import argparse
import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from paredown.cli.options.shared import add_common_arguments
from paredown.cli.tables.columns import add_columns
from paredown.cli.verbs.doctor_sweep import keep_sweep, sweep_table
from paredown.kernels.explain import explain_isa, explain_kernels
from paredown.kernels.isa import supported_isas, unavailable_isas
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
    kernels = explain_kernels(machine.isa)
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
        print(json.dumps(result, indent=2))
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
    choices = Table(title="Kernels")
    headings = ("kernel", "weights or pages", "times", "computed with")
    add_columns(choices, headings, left=headings)
    for row in kernels:
        choices.add_row(row.operation, row.dtype, row.inputs, row.instructions)
    console = Console()
    console.print(limits)
    console.print(choices)
    if swept is not None:
        console.print(sweep_table(swept))
    return 0
