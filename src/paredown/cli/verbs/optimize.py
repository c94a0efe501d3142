"""`paredown optimize`: finds, writes and verifies the best format for a machine."""

import argparse
from pathlib import Path

from rich.console import Console

from paredown.cli.console import headed, make_console
from paredown.cli.options.calibration import add_calibration_arguments, calibration_config
from paredown.cli.options.quantized import add_quantized_argument
from paredown.cli.options.removal import add_recovery_arguments, recover_step
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.optimization import candidates_table
from paredown.compress.recipe_names import SYNTAX
from paredown.evaluate.verify.verification_file import NAME
from paredown.jobs.float_source import FromQuantized
from paredown.models.hub.hub_source import model_name
from paredown.models.resolve import resolve_model
from paredown.optimize.bounds import DEFAULT_PROMPT_TOKENS, Bounds
from paredown.optimize.choose import parse_quality_loss
from paredown.optimize.optimize import optimize
from paredown.optimize.optimize_config import (
    DEFAULT_ROUNDS,
    DEFAULT_SAMPLES,
    DEFAULT_TOKENS,
    OptimizeConfig,
    parse_formats,
)
from paredown.optimize.optimize_result import OptimizeResult, nothing_chosen
from paredown.units import format_bytes, format_rate

EXAMPLES = """examples:
  paredown optimize
  paredown optimize my-model -o my-model-small --max-quality-loss 2%
  paredown optimize my-model --max-mb 400 --min-decode 30 --minutes 20
  paredown optimize my-model --prune --recover-minutes 10
  paredown optimize my-model --train-minutes 10
  paredown optimize my-model --formats bf16,int8,int4-g128 --text novel.txt --json
  paredown optimize all-MiniLM-L6-v2 --min-cosine 0.999
"""
# The exit code when all candidates lose too much and nothing was written.
NOTHING_CHOSEN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help="folder for the chosen checkpoint (default: MODEL-small)",
        metavar="OUT",
    )
    _add_bounds(parser)
    parser.add_argument(
        "--minutes",
        type=float,
        help="start nothing that would end later than after N minutes",
        metavar="N",
    )
    parser.add_argument(
        "--formats",
        help=f"recipes to try, with commas (default: a search): {SYNTAX}, as `paredown compress "
        "--help` explains, or mixed-BITS, as mixed-4, with a width for each layer",
        metavar="NAMES",
    )
    _add_other_candidates(parser)
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
        help=f"tokens of the text to predict (default {DEFAULT_TOKENS})",
        metavar="N",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=DEFAULT_ROUNDS,
        help="rounds of timing (default %(default)s)",
        metavar="N",
    )
    add_calibration_arguments(parser, DEFAULT_SAMPLES)
    add_quantized_argument(parser)
    reports = parser.add_mutually_exclusive_group()
    reports.add_argument(
        "--report", type=Path, help="folder for the report (default: OUT-report)", metavar="FOLDER"
    )
    reports.add_argument("--no-report", action="store_true", help="write no report")
    add_common_arguments(parser)


def _add_other_candidates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prune",
        action="store_true",
        help="try candidates that remove layers, neurons or single weights too",
    )
    add_recovery_arguments(parser)
    parser.add_argument(
        "--train-minutes",
        type=float,
        help="try QAD of few bits too, each trained for M minutes; needs torch",
        metavar="M",
    )


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "bounds",
        "Quality alone: the fastest and smallest within it. Size, speed or memory: the best "
        "quality within all of them.",
    )
    group.add_argument(
        "--max-quality-loss",
        help="perplexity that may be lost, such as 2%% (default 1%% where nothing is bounded)",
        metavar="SHARE",
    )
    for option, unit, what in (
        ("--max-kl", "NATS", "KL divergence to the original, per token"),
        ("--max-mb", "MB", "size of the folder's weights"),
        ("--min-decode", "TOKENS_PER_S", "speed that one sequence must decode at"),
        ("--max-first-token-s", "S", "time to read a prompt of --prompt-tokens"),
        ("--max-memory-mb", "MB", "memory of weights, and of --sequences of --prompt-tokens each"),
        (
            "--min-cosine",
            "COSINE",
            "mean cosine of an encoder's vectors to the original's (default 0.99 where nothing is "
            "bounded)",
        ),
        ("--min-texts", "TEXTS_PER_S", "speed of an encoder, 32 texts at once"),
    ):
        group.add_argument(option, type=float, metavar=unit, help=what)
    group.add_argument(
        "--prompt-tokens",
        type=int,
        default=DEFAULT_PROMPT_TOKENS,
        metavar="N",
        help="tokens that the bounds above speak of (default %(default)s)",
    )
    group.add_argument(
        "--sequences",
        type=int,
        default=1,
        metavar="N",
        help="sequences that memory is bounded for (default %(default)s)",
    )


def _bounds(args: argparse.Namespace) -> Bounds:
    loss = args.max_quality_loss
    return Bounds(
        max_quality_loss=None if loss is None else parse_quality_loss(loss),
        max_kl=args.max_kl,
        max_mb=args.max_mb,
        min_decode=args.min_decode,
        max_first_token_s=args.max_first_token_s,
        max_memory_mb=args.max_memory_mb,
        min_cosine=args.min_cosine,
        min_texts_per_s=args.min_texts,
        prompt_tokens=args.prompt_tokens,
        num_sequences=args.sequences,
    )


def run(args: argparse.Namespace) -> int:
    folder = resolve_model(args.model)
    output = args.output or Path(f"{model_name(folder)}-small")
    report = None if args.no_report else args.report or Path(f"{output}-report")
    config = OptimizeConfig(
        output=output,
        report=report,
        bounds=_bounds(args),
        minutes=args.minutes,
        formats=parse_formats(args.formats),
        num_tokens=args.tokens,
        text=args.text,
        num_rounds=args.rounds,
        num_threads=args.threads,
        calibration=calibration_config(args),
        prune=args.prune,
        recover=recover_step(args),
        train_minutes=args.train_minutes,
    )
    with progress_bar("starting") as bar:
        model = FromQuantized(model=folder) if args.from_quantized else folder
        result = optimize(model, config, bar.show_share)
    if args.json:
        say_json(result.as_json())
    else:
        _print(result)
    if result.exit_code is not None:
        return result.exit_code
    return 0 if result.chosen is not None else NOTHING_CHOSEN


def _print(result: OptimizeResult) -> None:
    console = make_console()
    console.print(candidates_table(result, console.width))
    for skipped in result.skipped:
        console.print(f"skipped {skipped.name}: {skipped.reason}", style="yellow")
    for name, tensors in result.clamped.items():
        console.print(
            f"clamped {name}: {sum(tensors.values())} values in {len(tensors)} tensors "
            "beyond its range",
            style="yellow",
        )
    for untried in result.not_tried:
        console.print(f"not tried {untried.name}: {untried.reason}", style="yellow")
    for name, words in result.mixes.items():
        console.print(f"{name}: {words}", style="dim", highlight=False)
    for name, words in result.pruned.items():
        console.print(f"{name} {words}", style="dim", highlight=False)
    if result.note is not None:
        console.print(result.note, style="dim")
    _print_machine(console, result)
    _print_choice(console, result)


def _print_machine(console: Console, result: OptimizeResult) -> None:
    machine = result.machine
    console.print(
        f"{machine.name}, {machine.num_threads} threads, {machine.isa}: memory "
        f"{format_rate(machine.bandwidth_bytes_per_s, 'B/s')}, int8 "
        f"{format_rate(machine.int8_ops_per_s, 'op/s')}. Quality on {result.protocol}.",
        style="dim",
    )


def _print_choice(console: Console, result: OptimizeResult) -> None:
    if result.report is not None:
        console.print(f"report: {result.report / 'report.html'}")
    if result.chosen is None:
        console.print(nothing_chosen(result), style="yellow")
        return
    if result.stopped is not None:
        console.print(f"{result.stopped}: nothing was written but the report", style="yellow")
        return
    chosen = next(one for one in result.candidates if one.name == result.chosen)
    console.print(
        f"written: {result.output} ({chosen.name}, {format_bytes(chosen.file_bytes)} instead of "
        f"{format_bytes(result.reference.file_bytes)})"
    )
    if result.verification is not None:
        worst = "".join(
            f"; the worst layer is {one.layer}, whose output moved by {one.own:.1%}"
            for one in result.verification.worst_layers[:1]
        )
        console.print(f"verified: {NAME} beside it{worst}")
    elif result.not_verified is not None:
        console.print(f"not verified: {result.not_verified}", style="yellow")
    assert result.serve_line is not None
    console.print(headed("serve it: ", result.serve_line), soft_wrap=True)
