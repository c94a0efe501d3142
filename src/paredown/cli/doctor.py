"""`paredown doctor`: the machine, the kernels chosen and why, and the limits measured."""

import argparse
import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from paredown.cost.calibration import Calibration, interpolate
from paredown.cost.machine_file import save_calibration
from paredown.evaluate.step_sweep import sweep_machine
from paredown.kernels.explain import explain_isa, explain_kernels
from paredown.kernels.isa import supported_isas, unavailable_isas
from paredown.kernels.probe import measure_machine
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.machine import Machine
from paredown.units import format_bytes, format_rate

EXAMPLES = """examples:
  paredown doctor
  paredown doctor --threads 1 --json
  PAREDOWN_ISA=avx2 paredown doctor
  paredown doctor --sweep
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--threads", type=int, default=None, help="threads to measure with")
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="measure steps of made-up models too (a minute or two), and keep what they tell for "
        "`paredown inspect` and `paredown plan`; nothing else should run meanwhile",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    machine = measure_machine(args.threads)
    threads = ThreadPlan.resolve(args.threads)
    kernels = explain_kernels(machine.isa)
    swept = _sweep(machine) if args.sweep else None
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
    for heading in ("kernel", "weights or pages", "times", "computed with"):
        choices.add_column(heading)
    for row in kernels:
        choices.add_row(row.operation, row.dtype, row.inputs, row.instructions)
    console = Console()
    console.print(limits)
    console.print(choices)
    if swept is not None:
        console.print(_sweep_table(swept))
    return 0


def _sweep(machine: Machine) -> Calibration:
    """Measures, fits and keeps."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=None)
        found = sweep_machine(
            machine,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    path = save_calibration(found)
    print(f"kept in {path}", file=sys.stderr)
    return found


def _sweep_table(calibration: Calibration) -> Table:
    table = Table(title="Products with weights, Gop/s where the weight lies in the caches")
    sizes = (1, 8, 32, 128, 512)
    for heading in ("weights", *(f"{size} tokens" for size in sizes), "of the bandwidth"):
        table.add_column(heading, justify="left" if heading == "weights" else "right")
    for name, rates in calibration.linear.items():
        speeds = (2e-9 / interpolate(rates.num_tokens, rates.seconds_per_mac, n) for n in sizes)
        table.add_row(name, *(f"{one:,.0f}" for one in speeds), f"{rates.memory_efficiency:.0%}")
    return table
