"""`paredown simulate`: runs a load on machines of any kind, through the engine's own scheduler."""

import argparse
from dataclasses import asdict, replace
from pathlib import Path

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
from paredown.cli.options.schedule import add_schedule_arguments, schedule_config
from paredown.cli.options.shared import MODEL_OR_CONFIG, add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.tables.simulation import print_simulation
from paredown.cost.model_formats import ModelFormats
from paredown.errors import ConfigError
from paredown.formats.table import COSTED_FORMATS
from paredown.plan.planned_machine import PlannedMachine
from paredown.plan.response_cache import ResponseCacheConfig
from paredown.plan.simulate import Fleet, simulate
from paredown.plan.simulation_plot import write_simulation_plot
from paredown.plan.trace import Trace
from paredown.plan.workload import RandomWorkload, TraceWorkload, Workload, check_rate
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import KV_DTYPES, PAGE_SIZE
from paredown.spec.model import ModelSpec

EXAMPLES = """examples:
  paredown simulate --rps 20                       the built-in model on this machine
  paredown simulate config.json --machine h100 --rps 40 --p95 3s
  paredown simulate config.json --machine h100 --machines 4 --trace mooncake.jsonl \\
      --router prefix-affinity --plot load.png     what prompts share is found again
  paredown simulate my-model --machine l4 --weights int4-g128 --rps 5 --burstiness 3

The scheduler, the pages and the prefix cache are the server's; the time of a step is predicted.
"""
_DEFAULT_REQUESTS = 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_machine_argument(parser)
    parser.add_argument(
        "--machines", type=int, default=1, metavar="N", help="number of machines (default 1)"
    )
    parser.add_argument(
        "--weights",
        default=None,
        help="format of the linear layers (default: as they are stored; bf16 for a config alone)",
    )
    parser.add_argument(
        "--kv-dtype",
        default=None,
        choices=KV_DTYPES,
        help="format of keys and values (default: as the checkpoint asks, else bf16)",
    )
    add_load_arguments(parser)
    parser.add_argument(
        "--requests",
        type=int,
        default=None,
        metavar="N",
        help=f"number of requests (default {_DEFAULT_REQUESTS}, or all of the trace)",
    )
    parser.add_argument(
        "--on-share",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="share of each minute in which requests come, at a rate that gives --rps (default 1)",
    )
    parser.add_argument(
        "--response-cache",
        type=int,
        default=0,
        metavar="N",
        help="answers that a response cache keeps for repeated requests, with a trace that has "
        "hash ids",
    )
    add_limit_arguments(parser)
    add_schedule_arguments(parser)
    parser.add_argument("--plot", type=Path, default=None, help="latencies and queue, as a PNG")
    add_common_arguments(parser, model=MODEL_OR_CONFIG)


def run(args: argparse.Namespace) -> int:
    check_picture_path(args.plot)
    if args.weights is not None and args.weights not in COSTED_FORMATS:
        raise ConfigError(
            "--weights names no format",
            seen=args.weights,
            remedy=f"Use one of {', '.join(COSTED_FORMATS)}.",
        )
    if args.target_itl_ms is not None:
        raise ConfigError(
            "a step budget is measured where the model runs",
            seen="--target-itl-ms",
            remedy="Give --max-step-tokens.",
        )
    limits = read_limits(args)
    model = read_model(args.model)
    name, spec = model.name, model.spec
    if not spec.generates:
        raise ConfigError(
            "an encoder's texts are not simulated",
            seen=f"{name}, {spec.family}",
            remedy="Use `paredown plan`, which says how many machines a rate of texts needs.",
        )
    workload, shares = _workload(args, spec)
    machine = PlannedMachine(profile=find_machine_profile(args))
    formats = _formats(args, model, machine.profile.roofs.activation_bytes)
    schedule = schedule_config(args)
    num_pages = machine.num_pages(
        spec, formats, max_running=args.max_running, max_step_tokens=args.max_step_tokens
    )
    fleet = Fleet(
        num_pages=num_pages,
        max_positions=spec.max_positions,
        num_replicas=args.machines,
        windows=spec.windows,
        kept=KeptPages.of(Context(spec=spec)),
        schedule=schedule,
        router=args.router or ("prefix-affinity" if shares else "least-loaded"),
        response_cache=ResponseCacheConfig(
            hit_rate=args.cache_hit, num_answers=args.response_cache
        ),
    )
    found = simulate(workload, fleet, machine.cost(spec, formats))
    title = f"{name}, {formats.name}, on {args.machines} x {machine.profile.roofs.name}"
    if args.plot is not None:
        write_simulation_plot(found, limits, title, args.plot)
    if args.json:
        basis = machine.profile.basis(formats)
        moments = [asdict(one) for one in found.moments]
        result = {"basis": basis, **found.summary(limits), "moments": moments}
        say_json(result)
        return 0
    console = make_console()
    each = f": {num_pages * PAGE_SIZE:,} tokens of keys and values each"
    console.print(headed(title, each))
    print_simulation(found, limits, console)
    console.print(f"Seconds of a step: {machine.profile.basis(formats)}.", style="dim")
    return 0


def _formats(args: argparse.Namespace, model: LoadedModel, activation_bytes: int) -> ModelFormats:
    """Returns the formats asked for, else the stored ones. With chosen weights the output layer is
    the original's, bf16."""
    stored = model.stored or ModelFormats()
    found = stored
    if args.weights is not None:
        found = ModelFormats(linear=COSTED_FORMATS[args.weights], zeros=stored.zeros)
    return replace(
        found, kv_dtype=args.kv_dtype or stored.kv_dtype, activation_bytes=activation_bytes
    )


def _workload(args: argparse.Namespace, spec: ModelSpec) -> tuple[Workload, bool]:
    """Returns the workload, and whether it is known which prefixes prompts share."""
    trace = read_trace_option(args)
    rate = read_rate(args, trace)
    if args.response_cache and (trace is None or not trace.shares_prefixes):
        raise ConfigError(
            "nothing says which requests repeat an earlier one",
            seen="--response-cache without a trace"
            if trace is None
            else f"--response-cache, and no hash ids in {args.trace}",
            remedy="Give a trace with hash ids, or --cache-hit SHARE.",
        )
    if trace is None:
        lengths = read_lengths(args, trace, spec)
        number = _DEFAULT_REQUESTS if args.requests is None else args.requests
        random = RandomWorkload(
            requests_per_s=rate,
            num_requests=number,
            lengths=lengths,
            burstiness=args.burstiness,
            on_share=args.on_share,
        )
        return random, False
    check_rate(rate)
    if args.on_share != 1:
        raise ConfigError(
            "--on-share and a trace exclude each other",
            seen=args.trace,
            remedy="The trace says when requests come.",
        )
    part = trace if args.requests is None else _first(trace, args.requests)
    workload = TraceWorkload(trace=part if args.rps is None else part.at_rate(rate))
    return workload, workload.shares_prefixes


def _first(trace: Trace, num_requests: int) -> Trace:
    if not 2 <= num_requests <= len(trace.requests):
        raise ConfigError(
            "the trace does not have that number of requests",
            seen=f"--requests {num_requests}",
            remedy=f"Use 2 to {len(trace.requests)}.",
        )
    return trace.first(num_requests)
