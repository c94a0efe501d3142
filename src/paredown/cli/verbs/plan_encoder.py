"""`paredown plan` for encoders: machines for a number of texts per second."""

import argparse

from rich.console import Console
from rich.table import Table

from paredown.cli.console import headed, make_console
from paredown.cli.options.load import LoadedModel, read_limits, read_rate
from paredown.cli.printed import say_json
from paredown.cli.tables.columns import add_columns
from paredown.cli.tables.inspect import seconds_text
from paredown.cli.tables.simulation import format_rate_of
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.model_formats import ModelFormats
from paredown.errors import ConfigError
from paredown.plan.encoder_plan import MAX_USE, EncoderOption, TextDemand, plan_encoder
from paredown.units import format_bytes

_TEXT_TOKENS = 128
_LIMIT_S = 1.0
# Options for loads of models that generate, with their defaults.
_GENERATION = {
    "trace": None,
    "output_tokens": None,
    "p95_ttft": None,
    "p95_tpot": None,
    "machines": None,
    "price_per_hour": None,
    "plot": None,
    "router": None,
    "burstiness": 1.0,
    "cache_hit": 0.0,
}


def print_encoder_plan(
    args: argparse.Namespace,
    model: LoadedModel,
    profile: MachineProfile,
    formats: list[ModelFormats],
) -> None:
    """Plans and prints machines for an encoder. Raises ConfigError for options that only models
    that generate have."""
    for name, default in _GENERATION.items():
        if getattr(args, name) != default:
            raise ConfigError(
                "an encoder does not generate, and has no such option",
                seen=f"--{name.replace('_', '-')} {getattr(args, name)}",
                remedy="Leave it out; --rps are texts per second, --input-tokens their length.",
            )
    demand = TextDemand(
        texts_per_s=read_rate(args, None),
        text_tokens=_text_tokens(args.input_tokens, model.spec.max_positions),
        limit_s=read_limits(args).e2e_s or _LIMIT_S,
    )
    # Keys and values are not kept: one format of them is enough.
    tried = list({one.linear_name: one for one in formats}.values())
    found = plan_encoder(model.spec, profile, demand, tried)
    if args.json:
        options = [one.as_json(demand) for one in found]
        say_json({"model": model.name, "texts_per_s": demand.texts_per_s, "options": options})
        return
    _print(found, demand, profile, model.name, make_console())


def _text_tokens(asked: str | None, most: int) -> int:
    if asked is None:
        return min(_TEXT_TOKENS, most)
    if not asked.isdecimal():
        raise ConfigError(
            "--input-tokens is no number of tokens for an encoder",
            seen=asked,
            remedy="Give the usual length of a text, as in 128.",
        )
    return int(asked[:10])


def _print(
    found: list[EncoderOption],
    demand: TextDemand,
    profile: MachineProfile,
    name: str,
    console: Console,
) -> None:
    rate = format_rate_of(demand.texts_per_s)
    what = f"{rate} texts/s of {demand.text_tokens} tokens, each within {demand.limit_s:g} s"
    console.print(headed(name, f" on {profile.roofs.name}: {what}"))
    table = Table(title=f"one machine, used to {MAX_USE:.0%}")
    headings = ("weights", "take", "texts at once", "batch", "texts/s", "tokens/s", "machines")
    add_columns(table, headings, left=("weights",))
    for one in found:
        cells = [one.formats.linear_name, format_bytes(one.weight_bytes)]
        machines = one.num_machines(demand)
        if machines is None:
            table.add_row(*cells, "", "", "too slow", "", "")
            continue
        table.add_row(
            *cells,
            f"{one.num_texts}",
            seconds_text(one.batch_s),
            format_rate_of(one.texts_per_s),
            format_rate_of(one.texts_per_s * demand.text_tokens),
            f"{machines:,}",
        )
    console.print(table)
    console.print(
        f"Seconds of a batch: {profile.basis(*(one.formats for one in found))}.", style="dim"
    )
