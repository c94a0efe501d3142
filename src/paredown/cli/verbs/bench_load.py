"""The options of `paredown bench` for the requests and their times."""

import argparse
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from paredown.cli.options.picture_path import check_picture_path
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.errors import ConfigError
from paredown.evaluate.load.arrival import Arrival, Length, drawn, poisson
from paredown.evaluate.load.benchmark import Cell
from paredown.evaluate.load.slo import SLO
from paredown.evaluate.load.trace_file import read_trace

DEFAULT_BATCHES = "1,8,32"
DEFAULT_INPUT, DEFAULT_OUTPUT = "128", "64"
DEFAULT_REQUESTS = 100
DEFAULT_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class BenchLoad:
    """Cells, each measured in rounds, or requests over time, run once. Requests of a trace are cut
    to what the model holds."""

    cells: list[Cell]
    arrivals: list[Arrival]
    name: str = ""
    is_trace: bool = False
    slo: SLO | None = None
    plot: Path | None = None
    seed: int = 0


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load: batches of requests at once, in rounds")
    group.add_argument(
        "--batch",
        help=f"requests at once, one size or more (default {DEFAULT_BATCHES})",
        metavar="N,N",
    )
    group.add_argument(
        "--input-tokens",
        help=f"tokens of a prompt; 64,512 for batches of each, 16-1024 for requests of any length "
        f"between (default {DEFAULT_INPUT})",
        metavar="N",
    )
    group.add_argument(
        "--output-tokens",
        help=f"tokens of an answer, as above (default {DEFAULT_OUTPUT})",
        metavar="N",
    )
    group = parser.add_argument_group("load: requests that come in over time, in place of batches")
    group.add_argument(
        "--requests",
        type=int,
        help=f"number of requests, also of a trace (default {DEFAULT_REQUESTS})",
        metavar="N",
    )
    group.add_argument(
        "--rate",
        type=float,
        help="requests per second, as a Poisson process (default: all at once, or as the trace "
        "has them)",
        metavar="R",
    )
    group.add_argument(
        "--trace",
        type=Path,
        help="lengths and times of real requests: Azure or Vidur CSV, Mooncake JSON lines",
        metavar="FILE",
    )
    group.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed that draws lengths and times (default 0)",
        metavar="N",
    )
    _add_common_load_arguments(parser)


def _add_common_load_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load: both")
    group.add_argument(
        "--slo", help="limits that an answer must keep: ttft=0.5s,tpot=50ms,itl=...,e2e=..."
    )
    group.add_argument("--plot", type=Path, help="draw the latencies, as PNG", metavar="OUT.png")
    group.add_argument(
        "--max-step-tokens",
        type=int,
        default=ScheduleConfig.max_step_tokens,
        help="tokens computed in one step (default %(default)s)",
        metavar="N",
    )
    group.add_argument(
        "--max-running",
        type=int,
        help=f"requests computed together (default {ScheduleConfig.max_running}, "
        "or the largest batch)",
        metavar="N",
    )
    group.add_argument(
        "--no-prefix-cache", action="store_true", help="compute every prompt from its start"
    )


def parse_load(args: argparse.Namespace) -> BenchLoad:
    """Checks before anything is loaded. Raises ConfigError, OutputError for a picture that cannot
    be written, and UnsupportedError for one that cannot be drawn."""
    if args.seed < 0:
        raise ConfigError("--seed is negative", seen=args.seed, remedy="Use 0 or more.")
    load = _over_time(args) if _is_over_time(args) else _batches(args)
    check_picture_path(args.plot)
    slo = None if args.slo is None else SLO.parse(args.slo)
    return replace(load, slo=slo, plot=args.plot, seed=args.seed)


def fit_defaults(args: argparse.Namespace, load: BenchLoad, max_tokens: int) -> BenchLoad:
    """Shrinks default lengths of batches to the context of a small model."""
    is_asked = args.input_tokens is not None or args.output_tokens is not None
    if is_asked or all(_num_tokens(cell) <= max_tokens for cell in load.cells):
        return load
    num_output = max(1, max_tokens // 3)
    num_input = max_tokens - num_output
    return replace(
        load,
        cells=[
            replace(cell, num_input_tokens=num_input, num_output_tokens=num_output)
            for cell in load.cells
        ],
    )


def _num_tokens(cell: Cell) -> int:
    return cell.num_input_tokens + cell.num_output_tokens


def load_config(args: argparse.Namespace, load: BenchLoad) -> ScheduleConfig:
    """Returns a schedule in which the whole load may wait, so that none is refused. Raises
    ConfigError."""
    largest = max((cell.batch for cell in load.cells), default=0)
    max_running = max(ScheduleConfig.max_running, largest)
    return ScheduleConfig(
        max_step_tokens=args.max_step_tokens,
        max_running=max_running if args.max_running is None else args.max_running,
        max_waiting=max(1, largest, len(load.arrivals)),
        prefix_cache=not args.no_prefix_cache,
    )


def _is_over_time(args: argparse.Namespace) -> bool:
    return any(one is not None for one in (args.requests, args.rate, args.trace))


def _batches(args: argparse.Namespace) -> BenchLoad:
    inputs = _numbers("--input-tokens", args.input_tokens or DEFAULT_INPUT)
    outputs = _numbers("--output-tokens", args.output_tokens or DEFAULT_OUTPUT)
    return BenchLoad(
        cells=[
            Cell(batch=batch, num_input_tokens=num_input, num_output_tokens=num_output)
            for num_input, num_output, batch in product(
                inputs, outputs, _numbers("--batch", args.batch or DEFAULT_BATCHES)
            )
        ],
        arrivals=[],
    )


def _over_time(args: argparse.Namespace) -> BenchLoad:
    for option in ("batch", "rounds"):
        if getattr(args, option) is not None:
            raise ConfigError(
                f"--{option} belongs to batches",
                seen="--requests, --rate or --trace",
                remedy="Leave one of them out.",
            )
    if args.trace is None:
        num_requests = DEFAULT_REQUESTS if args.requests is None else args.requests
        inputs = Length.parse(args.input_tokens or DEFAULT_INPUT)
        outputs = Length.parse(args.output_tokens or DEFAULT_OUTPUT)
        arrivals, name = drawn(num_requests, inputs, outputs, args.seed), f"{num_requests} requests"
    else:
        for option in ("input_tokens", "output_tokens"):
            if getattr(args, option) is not None:
                raise ConfigError(
                    f"--{option.replace('_', '-')} and a trace exclude each other",
                    seen=args.trace,
                    remedy="The trace says how long requests are.",
                )
        arrivals = _first_of_trace(args.trace, args.requests)
        name = f"{len(arrivals)} requests of {args.trace.name}"
    if args.rate is not None:
        arrivals = poisson(arrivals, args.rate, args.seed)
        name += f", {args.rate:g} per second"
    return BenchLoad(cells=[], arrivals=arrivals, name=name, is_trace=args.trace is not None)


def _first_of_trace(path: Path, num_requests: int | None) -> list[Arrival]:
    if num_requests is not None and num_requests < 1:
        raise ConfigError("there are no requests to run", seen=num_requests, remedy="Ask for some.")
    arrivals = read_trace(path, num_requests or DEFAULT_REQUESTS)
    if len(arrivals) < (num_requests or 0):
        raise ConfigError(
            "the trace has fewer requests",
            seen=f"{len(arrivals)}, --requests {num_requests}",
            remedy="Ask for fewer, or give another trace.",
        )
    return arrivals


def _numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(
            f"{option} is not a list of positive numbers",
            seen=repr(text),
            remedy="Write numbers of 1 or more, with commas between them: 1,8,32.",
        )
    if len(set(parts)) < len(parts):
        raise ConfigError(
            f"{option} names a number twice", seen=repr(text), remedy="Leave one out."
        )
    return [int(part) for part in parts]
