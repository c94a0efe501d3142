"""Adds table columns whose cells are never cut."""

from collections.abc import Sequence

from rich.table import Table

from paredown.cli.console import lines


def add_columns(table: Table, headings: Sequence[str], left: Sequence[str] = ("",)) -> None:
    """Aligns the columns in `left` to the left and all others, which hold figures, to the right.
    Long cells wrap; Rich would cut them."""
    for heading in headings:
        justify = "left" if heading in left else "right"
        table.add_column(lines(heading), justify=justify, overflow="fold")  # type: ignore[arg-type]
