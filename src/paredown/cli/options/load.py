"""The options for load and latency limits, for the verbs that simulate."""

import argparse
import math
import re
from dataclasses import dataclass
from pathlib import Path

from paredown.cli.tables.notes import tell_notes
from paredown.cost.model_formats import ModelFormats
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.models.config_alone import is_config_alone, read_config_alone
from paredown.models.hub.hub_source import model_name
from paredown.models.resolve import resolve_model
from paredown.models.run_forms import model_formats
from paredown.plan.lengths import parse_lengths
from paredown.plan.routers import ROUTER_NAMES
from paredown.plan.simulation import LatencyLimits
from paredown.plan.trace import Trace, open_trace
from paredown.plan.workload import DrawnLengths, LengthSource, TraceLengths
from paredown.shown import quoted
from paredown.spec.model import ModelSpec

DEFAULT_INPUT, DEFAULT_OUTPUT = "~512", "~128"
_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0}


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what comes")
    group.add_argument(
        "--rps",
        type=float,
        default=None,
        metavar="R",
        help="requests per second, the response cache's too (default: the trace's)",
    )
    group.add_argument(
        "--trace",
        type=Path,
        default=None,
        metavar="FILE",
        help="when requests come and how long they are, from a trace of Azure, Splitwise (CSV) or "
        "Mooncake (JSON lines, with the prefixes that prompts share)",
    )
    for name, default, what in (
        ("input", DEFAULT_INPUT, "prompts"),
        ("output", DEFAULT_OUTPUT, "answers"),
    ):
        group.add_argument(
            f"--{name}-tokens",
            default=None,
            metavar="N",
            help=f"tokens of {what}: 512 (always), 100-900 (equally likely), ~512 (log-normal with "
            f"this mean) (default {default})",
        )
    group.add_argument(
        "--burstiness",
        type=float,
        default=1.0,
        metavar="B",
        help="standard deviation of the time between requests, over its mean (default 1: Poisson)",
    )
    group.add_argument(
        "--cache-hit",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of requests that a response cache answers (default 0)",
    )
    group.add_argument(
        "--router",
        choices=ROUTER_NAMES,
        default=None,
        help="which machine a request goes to (default: prefix-affinity where the trace tells what "
        "prompts share, else least-loaded)",
    )


def add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how fast: of 95 % of the requests that reach a machine")
    for option, what in (
        ("--p95", "to the last token"),
        ("--p95-ttft", "to the first token"),
        ("--p95-tpot", "between two tokens, on average"),
    ):
        group.add_argument(option, default=None, metavar="TIME", help=f"time {what}, as 3s or 50ms")


def read_limits(args: argparse.Namespace) -> LatencyLimits:
    return LatencyLimits(
        e2e_s=_seconds("--p95", args.p95),
        ttft_s=_seconds("--p95-ttft", args.p95_ttft),
        tpot_s=_seconds("--p95-tpot", args.p95_tpot),
    )


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """The model of a simulated load. `stored` are a checkpoint's formats; None for a config
    alone."""

    name: str
    spec: ModelSpec
    stored: ModelFormats | None = None


def read_model(name: str | None) -> LoadedModel:
    """Reads a model's shape, from its config alone if it has no weights. Prints its notes."""
    path = None if name is None else Path(name)
    if path is not None and path.exists() and is_config_alone(path):
        alone = read_config_alone(path)
        tell_notes(alone.notes)
        return LoadedModel(name=path.name, spec=alone.spec)
    checkpoint = Checkpoint.open(resolve_model(name))
    tell_notes(checkpoint.notes)
    return LoadedModel(
        name=model_name(checkpoint.path), spec=checkpoint.spec, stored=model_formats(checkpoint)
    )


def read_trace_option(args: argparse.Namespace) -> Trace | None:
    """Reads the trace. Raises ConfigError for a trace with options that it already determines."""
    if args.trace is None:
        return None
    for option, default in (("input_tokens", None), ("output_tokens", None), ("burstiness", 1.0)):
        if getattr(args, option) != default:
            raise ConfigError(
                f"--{option.replace('_', '-')} and a trace exclude each other",
                seen=args.trace,
                remedy="The trace says how long requests are and when they come.",
            )
    return open_trace(args.trace)


def read_lengths(args: argparse.Namespace, trace: Trace | None, spec: ModelSpec) -> LengthSource:
    """Returns the lengths; log-normal ones are cut to half of the context."""
    if trace is not None:
        return TraceLengths(trace=trace)
    limit = max(spec.max_positions // 2 - 1, 1)
    return DrawnLengths(
        prompt=parse_lengths(args.input_tokens or DEFAULT_INPUT, limit=limit),
        output=parse_lengths(args.output_tokens or DEFAULT_OUTPUT, limit=limit),
    )


def read_rate(args: argparse.Namespace, trace: Trace | None) -> float:
    """Returns the arrival rate. Raises ConfigError where nothing says how many requests arrive."""
    if args.rps is not None:
        return float(args.rps)
    if trace is None:
        raise ConfigError(
            "the rate of requests is not given",
            seen="neither --rps nor --trace",
            remedy="Give --rps 100, or a trace.",
        )
    return trace.requests_per_s


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]*\.?[0-9]+) ?(ms|s|min)", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else math.nan
    if not 0 < seconds <= 1e6:
        raise ConfigError(
            f"{option} is not a duration", seen=quoted(text), remedy="Write 3s, 0.5s, 50ms or 2min."
        )
    return seconds
