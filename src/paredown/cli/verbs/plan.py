"""`paredown plan`: how many machines a load needs, with which format, limits and price."""

import argparse
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from paredown.cli.console import headed, make_console
from paredown.cli.options.load import (
    LoadedModel,
    add_limit_arguments,
    add_load_arguments,
    read_lengths,
    read_limits,
    read_model,
    read_rate,
    read_trace_option,
)
from paredown.cli.options.machine import add_machine_argument, find_machine_profile
from paredown.cli.options.picture_path import check_picture_path
from paredown.cli.options.shared import MODEL_OR_CONFIG, add_common_arguments
from paredown.cli.printed import say_json, tell
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.columns import add_columns
from paredown.cli.tables.simulation import format_rate_of, print_simulation
from paredown.cli.verbs.plan_encoder import print_encoder_plan
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.memory import model_memory
from paredown.cost.model_formats import ModelFormats
from paredown.errors import ConfigError
from paredown.formats.table import COSTED_FORMATS
from paredown.plan.demand import Demand
from paredown.plan.plan import MAX_SPEEDUP, Option, Plan, make_plan
from paredown.plan.planned_machine import PlannedMachine
from paredown.plan.simulation import LatencyLimits
from paredown.plan.simulation_plot import write_simulation_plot
from paredown.spec.kv import KV_DTYPES, PAGE_SIZE
from paredown.units import format_bytes, format_count

EXAMPLES = """examples:
  paredown plan config.json --machine h100 --rps 1000 --p95 3s --cache-hit 0.2
                                        machines, format and batch limits for this load
  paredown plan config.json --machine h100 --rps 1000 --p95 3s --price-per-hour 2.5
                                        and what a million tokens cost
  paredown plan config.json --machine h100 --rps 1000 --p95 3s --machines 4
                                        what would have to be how many times as fast for 4 to do
  paredown plan config.json --machine l4 --rps 20 --trace azure.csv --p95-ttft 500ms
                                        lengths and bursts of a real service
  paredown plan all-MiniLM-L6-v2 --machine h100 --rps 50000 --input-tokens 128
                                        machines for so many texts of an encoder

Without a limit --p95 3s is meant. A format that needs fewer machines may cost quality:
`paredown optimize` measures it.
"""
_WEIGHTS, _KV_DTYPES = ("bf16", "int8", "int4-g128"), ("bf16", "int8")
_DEFAULT_P95_S = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_machine_argument(parser)
    add_load_arguments(parser)
    add_limit_arguments(parser)
    parser.add_argument(
        "--weights",
        nargs="+",
        default=None,
        metavar="FORMAT",
        help=f"formats of the linear layers to try (default {' '.join(_WEIGHTS)}, and the one "
        "that a checkpoint is stored in)",
    )
    parser.add_argument(
        "--kv-dtype",
        nargs="+",
        default=list(_KV_DTYPES),
        choices=KV_DTYPES,
        help=f"formats of keys and values to try (default {' '.join(_KV_DTYPES)})",
    )
    parser.add_argument(
        "--machines",
        type=int,
        default=None,
        metavar="N",
        help="say too what would have to be faster, and how much, for N machines",
    )
    parser.add_argument(
        "--price-per-hour", type=float, default=None, metavar="P", help="price of one machine"
    )
    parser.add_argument("--plot", type=Path, default=None, help="latencies and queue, as a PNG")
    add_common_arguments(parser, model=MODEL_OR_CONFIG)


def run(args: argparse.Namespace) -> int:
    check_picture_path(args.plot)
    limits = read_limits(args)
    if limits == LatencyLimits():
        limits = LatencyLimits(e2e_s=_DEFAULT_P95_S)
    model = read_model(args.model)
    if not model.spec.generates:
        profile = find_machine_profile(args)
        print_encoder_plan(args, model, profile, _formats(args, profile, model))
        return 0
    name, spec = model.name, model.spec
    trace = read_trace_option(args)
    shares = trace is not None and trace.shares_prefixes
    demand = Demand(
        requests_per_s=read_rate(args, trace),
        lengths=read_lengths(args, trace, spec),
        limits=limits,
        hit_rate=args.cache_hit,
        burstiness=args.burstiness,
        trace=trace,
        router=args.router or ("prefix-affinity" if shares else "least-loaded"),
    )
    profile = find_machine_profile(args)
    with progress_bar("simulating") as bar:
        found = make_plan(
            spec,
            PlannedMachine(profile=profile),
            demand,
            formats=_formats(args, profile, model),
            price_per_hour=args.price_per_hour,
            asked_machines=args.machines,
            on_note=lambda note: bar.show_note(f"simulating {note}"),
        )
    if args.plot is not None:
        title = f"{name} on {found.num_machines} x {profile.roofs.name}"
        write_simulation_plot(found.simulation, limits, title, args.plot)
    if args.json:
        say_json({"model": name} | found.as_json())
        return 0
    _print(found, name, make_console())
    return 0


def _formats(
    args: argparse.Namespace, profile: MachineProfile, model: LoadedModel
) -> list[ModelFormats]:
    """Returns the formats asked for, or the usual ones and the model's stored one. On a machine
    with measured kernels, only measured formats count, since times from its roofs alone are not
    comparable."""
    asked = _WEIGHTS if args.weights is None else args.weights
    unknown = [one for one in asked if one not in COSTED_FORMATS]
    if unknown:
        raise ConfigError(
            "--weights names no format",
            seen=", ".join(unknown),
            remedy=f"Use some of {', '.join(COSTED_FORMATS)}.",
        )
    zeros = () if model.stored is None else model.stored.zeros
    tried = [ModelFormats(linear=COSTED_FORMATS[weights], zeros=zeros) for weights in asked]
    if args.weights is None and model.stored is not None:
        tried.append(replace(model.stored, kv_dtype="bf16"))
    activation_bytes = profile.roofs.activation_bytes
    formats = [
        replace(one, kv_dtype=kv_dtype, activation_bytes=activation_bytes)
        for one in dict.fromkeys(tried)
        for kv_dtype in args.kv_dtype
    ]
    if profile.fit is None:
        return formats
    known = [one for one in formats if profile.knows(one)]
    if left_out := [one.name for one in formats if one not in known]:
        tell(
            f"note: not measured on this machine, so left out: {'; '.join(left_out)}",
        )
    if not known:
        raise ConfigError(
            "none of these formats was measured on this machine",
            seen=", ".join(one.name for one in formats),
            remedy=f"Measured are {', '.join(profile.fit.linear)}.",
        )
    return known


def _print(found: Plan, name: str, console: Console) -> None:
    demand = found.demand
    machine = found.machine
    hits = f", {demand.hit_rate:.0%} answered by the response cache" if demand.hit_rate else ""
    rate = format_rate_of(demand.requests_per_s)
    where = f" on {machine.profile.roofs.name}: {rate} requests/s{hits}"
    console.print(headed(name, where))
    console.print(_options_table(found))
    best = found.best
    machines = format_count(found.num_machines, "machine")
    how = (
        f" with {best.setup.formats.name}, --max-running {best.setup.max_running} "
        f"--max-step-tokens {best.setup.max_step_tokens}: "
        f"{found.tokens_per_s:,.0f} generated tokens/s"
    )
    console.print(headed(machines, how))
    if found.price_per_million is not None:
        console.print(f"{found.price_per_million:.4g} for a million generated tokens")
    print_simulation(found.simulation, demand.limits, console)
    if found.simulation.num_replicas < found.num_machines:
        console.print(
            f"({found.simulation.num_replicas} of the machines, with their share of the load)",
            style="dim",
        )
    if found.speedups is not None:
        console.print(_speedup_table(found))
    console.print(
        f"Seconds of a step: {found.basis}. Smaller formats may cost quality: `paredown optimize` "
        "measures it.",
        style="dim",
    )


def _options_table(found: Plan) -> Table:
    table = Table(title="one machine alone, within the latencies asked for")
    headings = ("weights", "KV", "weights take", "KV tokens", "requests/s", "machines")
    add_columns(table, headings, left=("weights", "KV"))
    for one in found.options:
        table.add_row(*_option_cells(one, found.demand.computed_per_s))
    return table


def _option_cells(option: Option, requests_per_s: float) -> list[str]:
    setup = option.setup
    formats = setup.formats
    memory = model_memory(setup.spec, formats, batch=1, context=1, step_tokens=1)
    cells = [
        formats.linear_name,
        formats.kv_name,
        format_bytes(memory.weights + memory.vectors + memory.embedding),
    ]
    if option.error is not None:
        return [*cells, "", "does not fit", ""]
    tokens = f"{setup.num_pages * PAGE_SIZE:,}"
    if not option.requests_per_s:
        return [*cells, tokens, "too slow", ""]
    number = requests_per_s / option.requests_per_s
    return [*cells, tokens, format_rate_of(option.requests_per_s), f"{number:,.1f}"]


def _speedup_table(found: Plan) -> Table:
    assert found.asked_machines is not None
    machines = format_count(found.asked_machines, "machine")
    table = Table(title=f"for {machines} to do, one of these alone")
    add_columns(table, ("", "times as fast, or as large"))
    assert found.speedups is not None
    for name, factor in found.speedups.items():
        text = f"not even {MAX_SPEEDUP:.0f}"
        if factor is not None:
            text = "as it is" if factor == 1 else f"{factor:.2f}"
        table.add_row(name, text)
    return table
