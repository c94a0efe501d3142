"""`paredown inspect --symbolic`: the cost of each operation in letters."""

from dataclasses import replace

from rich.table import Table

from paredown.cli.console import make_console
from paredown.cli.printed import say_json
from paredown.cli.tables.columns import add_columns
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import (
    KEYS,
    LOGITS,
    PAIRS,
    TOKENS,
    Operation,
    expert_letter,
    window_letters,
)
from paredown.cost.operations import operations
from paredown.cost.polynomial import Polynomial, Ratio
from paredown.cost.sizes import LEGEND, Sizes
from paredown.spec.model import ModelSpec

# As textbooks count: two-byte numbers between operations, and scores that go through memory.
TEXTBOOK_BYTES = 2


def formulas(
    spec: ModelSpec, formats: ModelFormats
) -> dict[str, list[tuple[str, int, Polynomial, Polynomial, Ratio]]]:
    """Returns name, count, FLOPs, bytes and FLOPs per byte of each operation, by phase."""
    textbook = replace(formats, activation_bytes=TEXTBOOK_BYTES)
    counted = operations(spec, textbook, Sizes.in_letters(spec), fused=False)
    return {
        phase: [_formula(one, load) for one in counted] for phase, load in symbolic_loads().items()
    }


def symbolic_loads() -> dict[str, dict[str, Polynomial]]:
    """Returns two loads: a prompt of L tokens that all attend to all L (causal attention needs
    half), and one token of each of B sequences of S tokens. Windows of W are shorter than both."""
    prompt, batch, context, window = (Polynomial.letter(one) for one in "LBSW")
    one = Polynomial.number(1)
    window_pairs, window_keys = window_letters(0)
    return {
        "prefill": {
            TOKENS: prompt,
            LOGITS: one,
            PAIRS: prompt * prompt,
            KEYS: prompt,
            window_pairs: prompt * window,
            window_keys: prompt,
            expert_letter(0): Polynomial.letter("X"),
        },
        "decode": {
            TOKENS: batch,
            LOGITS: batch,
            PAIRS: batch * context,
            KEYS: batch * context,
            window_pairs: batch * window,
            window_keys: batch * window,
            expert_letter(0): Polynomial.letter("X"),
        },
    }


def print_formulas(spec: ModelSpec, formats: ModelFormats, *, as_json: bool) -> None:
    found = formulas(spec, formats)
    if as_json:
        rows = {
            phase: [
                {
                    "operation": name,
                    "count": count,
                    "flops": str(flops),
                    "bytes": str(num_bytes),
                    "intensity": str(intensity),
                }
                for name, count, flops, num_bytes, intensity in listed
            ]
            for phase, listed in found.items()
        }
        say_json({"letters": LEGEND, **rows})
        return
    console = make_console()
    titles = {
        "prefill": "prefill: a prompt of L tokens",
        "decode": "decode: a token of each of B sequences of S tokens",
    }
    for phase, listed in found.items():
        table = Table(title=titles[phase])
        headings = ("operation", "times", "FLOPs", "bytes", "FLOPs per byte")
        add_columns(table, headings, left=[one for one in headings if one != "times"])
        for name, count, flops, num_bytes, intensity in listed:
            table.add_row(name, str(count), str(flops), str(num_bytes), str(intensity))
        console.print(table)
    console.print(
        f"{LEGEND}. One time each; {TEXTBOOK_BYTES} bytes for numbers between operations, weights "
        f"in {formats.linear.name}; scores go through memory, and every token meets all L "
        "(a causal mask leaves half).",
        style="dim",
    )


def _formula(
    one: Operation, load: dict[str, Polynomial]
) -> tuple[str, int, Polynomial, Polynomial, Ratio]:
    flops, num_bytes = one.flops.replace(load), one.bytes.replace(load)
    return one.name, one.count, flops, num_bytes, Ratio.of(flops, num_bytes)
