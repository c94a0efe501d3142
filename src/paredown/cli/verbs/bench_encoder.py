"""`paredown bench` for encoders: texts and tokens per second."""

import argparse
from dataclasses import asdict, replace
from itertools import product

from rich.console import Console
from rich.table import Table

from paredown.cli.console import headed, make_console
from paredown.cli.options.encoder import encoder_run_options
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.bench import print_machine
from paredown.cli.tables.columns import add_columns
from paredown.cli.verbs.bench_load import DEFAULT_ROUNDS
from paredown.engine.encode.encoder_model import as_encoder
from paredown.errors import ConfigError
from paredown.evaluate.quality.measurement import linear_format
from paredown.evaluate.speed.encoder_speed import EncoderCell, EncoderSpeed, measure_encoder
from paredown.evaluate.speed.speed import arithmetic_peak
from paredown.executors.load import load_encoder
from paredown.kernels.probe import measure_machine
from paredown.models.checkpoint import Checkpoint
from paredown.models.hub.hub_source import model_name

DEFAULT_BATCHES = "1,32"
DEFAULT_TOKENS = "16,128,256"
# Options for loads of models that generate, which are None unless they are given.
_GENERATION = ("output_tokens", "requests", "rate", "trace", "slo", "plot")


def bench_encoder(args: argparse.Namespace, checkpoint: Checkpoint) -> int:
    """Measures the checkpoint as an encoder and prints the result. Raises ConfigError."""
    for name in _GENERATION:
        if getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                "an encoder does not generate, and has no such option",
                seen=f"{option} {getattr(args, name)}",
                remedy="Leave it out; --batch and --input-tokens choose the texts.",
            )
    encoder = as_encoder(checkpoint)
    assert encoder.encoder_settings is not None
    cells = _cells(args, encoder.encoder_settings.max_tokens)
    options = encoder_run_options(args)
    executor = load_encoder(encoder, options)
    weights = linear_format(checkpoint)
    if options.activations in weights.possible_activations:
        weights = replace(weights, activations=options.activations)
    with progress_bar("measuring") as progress:
        machine = measure_machine(executor.threads.prefill)
        found = measure_encoder(
            executor,
            cells,
            num_rounds=args.rounds or DEFAULT_ROUNDS,
            peak_per_s=arithmetic_peak(machine, weights),
            on_count=progress.show_count,
        )
    name = model_name(checkpoint.path)
    if args.json:
        listed = [asdict(one.cell) | _figures(one) for one in found]
        say_json({"model": name, "texts": listed, "machine": asdict(machine)})
        return 0
    console = make_console()
    console.print(headed(name, f": {encoder.spec.family}, {weights.name}"))
    _print_speeds(console, found)
    console.print(f"threads: {executor.threads.explained()}", style="dim")
    print_machine(console, machine)
    return 0


def _cells(args: argparse.Namespace, max_tokens: int) -> list[EncoderCell]:
    """Returns the cells asked for; default lengths end at the model's own."""
    lengths = _numbers(args.input_tokens or DEFAULT_TOKENS, "--input-tokens")
    if args.input_tokens is None:
        lengths = sorted({min(length, max_tokens) for length in lengths})
    if max(lengths) > max_tokens:
        raise ConfigError(
            "--input-tokens is more than the model takes",
            seen=max(lengths),
            remedy=f"Use at most {max_tokens}.",
        )
    batches = _numbers(args.batch or DEFAULT_BATCHES, "--batch")
    return [
        EncoderCell(num_texts=batch, num_tokens=length)
        for length, batch in product(lengths, batches)
    ]


def _numbers(text: str, option: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and 0 < int(part) <= 10**6 for part in parts):
        raise ConfigError(
            f"{option} is no list of numbers for an encoder",
            seen=text,
            remedy="Use whole numbers from 1 on, as in 16,128.",
        )
    return [int(part) for part in parts]


def _figures(one: EncoderSpeed) -> dict[str, float]:
    return {
        "texts_per_s": one.texts_per_s,
        "tokens_per_s": one.tokens_per_s,
        "spread": one.spread,
        "mfu": one.mfu,
    }


def _print_speeds(console: Console, found: list[EncoderSpeed]) -> None:
    table = Table(title="texts encoded at once")
    add_columns(table, ("texts", "tokens", "texts/s", "tokens/s", "spread", "MFU"))
    for one in found:
        table.add_row(
            f"{one.cell.num_texts}",
            f"{one.cell.num_tokens}",
            f"{one.texts_per_s:,.1f}",
            f"{one.tokens_per_s:,.0f}",
            f"{one.spread:.1%}",
            f"{one.mfu:.0%}",
        )
    console.print(table)
