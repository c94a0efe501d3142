"""Prints what a distillation made, and how the student compares with its teacher."""

from rich.console import Console
from rich.table import Table

from paredown.cli.tables.notes import join_notes
from paredown.evaluate.quality.measurement import Measurement
from paredown.jobs.distill import DistilledCheckpoint
from paredown.jobs.verify_config import NOT_WANTED
from paredown.units import format_bytes


def print_distillation(console: Console, made: DistilledCheckpoint) -> None:
    training = made.written.training
    console.print(f"{made.written.path}: {made.method}, learned from {made.source}")
    console.print(
        f"{training.num_tokens:,} tokens at {training.tokens_per_s:,.0f} tokens/s; predicted at "
        f"the peak: {format_bytes(made.written.memory.total)} of memory"
    )
    for name, count in made.written.clamped.items():
        console.print(f"clamped: {count} values of {name} are beyond the range of its dtype")
    for note in join_notes(made.notes):
        console.print(f"note: {note}", style="yellow")
    if made.verification is not None and made.before is not None:
        student, teacher = made.verification.compressed, made.verification.original
        console.print(_table(student, made.before, teacher))
        console.print(f"Protocol: {made.verification.protocol}.", style="dim")
    elif made.not_verified == NOT_WANTED:
        console.print("not verified, as asked; `paredown serve` will have nothing to check")
    else:
        console.print(f"not verified: {made.not_verified}", style="yellow")


def _table(student: Measurement, before: Measurement, teacher: Measurement) -> Table:
    """A column for the student, one for how it started, and one for its teacher."""
    table = Table("verified", "student", "before", "teacher")
    columns = (student, before, teacher)
    table.add_row("size", *(format_bytes(one.file_bytes) for one in columns))
    if student.cosine_mean is not None:
        _add_agreement(table, student, before)
        return table
    table.add_row("perplexity", *(_figure(one.perplexity, ".3f") for one in columns))
    table.add_row("bits per byte", *(_figure(one.bits_per_byte, ".4f") for one in columns))
    table.add_row(
        "KL divergence, nats per token", *(_figure(one.kl_divergence, ".5f") for one in columns)
    )
    table.add_row("top-1 agreement", *(_figure(one.top1_agreement, ".2%") for one in columns))
    return table


def _add_agreement(table: Table, student: Measurement, before: Measurement) -> None:
    """Adds how far an encoder is from its teacher."""
    for told, name, form in (
        ("cosine, mean", "cosine_mean", ".4f"),
        ("cosine, least", "cosine_least", ".4f"),
        ("rank agreement of pairs (Spearman)", "rank_agreement", ".4f"),
        ("label agreement", "label_agreement", ".2%"),
    ):
        values = [getattr(one, name) for one in (student, before)]
        if values != [None, None]:
            table.add_row(told, *(_figure(value, form) for value in values))


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
