"""Columns of the tables that verbs print: none of their cells is ever cut."""

from collections.abc import Sequence

from rich.table import Table

from paredown.cli.console import lines


def add_columns(table: Table, headings: Sequence[str], left: Sequence[str] = ("",)) -> None:
    """Words at the left for the headings named in `left`, figures at the right. What is longer than
    its column goes on in the next line; Rich would cut it."""
    for heading in headings:
        justify = "left" if heading in left else "right"
        table.add_column(lines(heading), justify=justify, overflow="fold")  # type: ignore[arg-type]
