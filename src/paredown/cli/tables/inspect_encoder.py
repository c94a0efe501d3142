"""The tables of `paredown inspect` for an encoder."""

from rich.console import Console
from rich.table import Table

from paredown.cli.console import headed
from paredown.cli.tables.columns import add_columns
from paredown.cli.tables.inspect import (
    count_text,
    machine_line,
    operations_table,
    seconds_text,
)
from paredown.cost.encoder_inspection import EncoderInspection
from paredown.units import format_bytes


def print_encoder_inspection(found: EncoderInspection, name: str, console: Console) -> None:
    texts = f"{found.num_texts} x {found.text_tokens:,} tokens"
    count = count_text(found.spec.num_parameters())
    formats = found.formats.linear_name
    console.print(headed(name, f": {found.spec.family}, {count} parameters, {formats}"))
    console.print(
        operations_table(
            f"encode: {texts} at once",
            found.operations,
            found.operation_s,
            found.roofs,
            found.best_s,
        )
    )
    console.print(_memory(found))
    console.print(_predicted(found, texts))
    console.print(machine_line(found.machine, found.formats), style="dim")


def _memory(found: EncoderInspection) -> Table:
    memory = found.memory
    table = Table(title="memory", show_header=False)
    add_columns(table, ("", "bytes"), left=("", "bytes"))
    for label, num_bytes in (
        ("linear layers", memory.weights),
        ("embedding table", memory.embedding),
        ("norms, biases, positions", memory.vectors),
        ("what a batch works in", memory.activations),
        ("token ids in, vectors out", memory.inputs + memory.outputs),
        ("all", memory.total),
    ):
        table.add_row(label, format_bytes(num_bytes))
    return table


def _predicted(found: EncoderInspection, texts: str) -> Table:
    table = Table(title="predicted and at best")
    add_columns(table, ("", "time", "texts/s", "tokens/s", "at best", "share of the roof"))
    table.add_row(
        texts,
        seconds_text(found.predicted_s),
        f"{found.texts_per_s:,.0f}",
        f"{found.tokens_per_s:,.0f}",
        seconds_text(found.best_s),
        f"{found.best_s / found.predicted_s:.0%}",
    )
    return table
