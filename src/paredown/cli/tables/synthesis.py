"""Prints what a teacher was asked for, and what came of it."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from paredown.distill.black_box.synthesize import SynthesisResult
from paredown.units import format_count


def print_synthesis(console: Console, made: SynthesisResult) -> None:
    console.print(
        f"{made.path}: {format_count(made.num_examples, 'example')}, from "
        f"{format_count(made.num_requests, 'request')} of this run; {made.num_tokens:,} tokens in "
        "all"
    )
    console.print(
        f"{made.useful:.1%} of the answers are of use; {made.mean_answer_words:.0f} words on "
        "average"
    )
    console.print(_table(made))
    _print_counts(console, "no useful answer", made.failures)
    _print_counts(console, "left out", made.dropped)
    for note in made.notes:
        console.print(f"note: {note}", style="yellow")


def _table(made: SynthesisResult) -> Table:
    table = Table("diversity", "prompts", "answers")
    both = (made.prompts, made.answers)
    table.add_row("distinct words", *(_share(one.distinct_1) for one in both))
    table.add_row("distinct pairs of words", *(_share(one.distinct_2) for one in both))
    table.add_row("self-BLEU", *(_share(one.self_bleu) for one in both))
    return table


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _print_counts(console: Console, what: str, counts: Mapping[str, int]) -> None:
    for reason, count in sorted(counts.items()):
        console.print(f"{what}: {reason} ({count:,})", style="yellow")
