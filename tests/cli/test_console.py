"""Consoles: every text in a line or a table is escaped, and no markup is obeyed."""

import io

import pytest
from hypothesis import given, settings
from rich.console import Console
from rich.table import Table

from drivers.hostile_text import is_safe, texts
from paredown.cli.console import headed, lines, make_console
from paredown.cli.tables.columns import add_columns


def console(*, terminal: bool = False) -> tuple[Console, io.StringIO]:
    found, file = make_console(), io.StringIO()
    found.file = file
    found._force_terminal = terminal
    found._width = 10_000
    return found, file


@settings(deadline=None)
@given(texts)
def test_lines_and_cells_are_safe(text: str) -> None:
    printed, file = console()
    table = Table(title=text)
    add_columns(table, (text, "b\nc"))
    table.add_row(text, lines(text))
    printed.print(table)
    printed.print(text, style="dim")
    printed.print(headed(text, text))
    printed.print(lines(text))
    assert is_safe(file.getvalue(), newlines=True)


@pytest.mark.parametrize("text", ["[red]a[/red]", "[/]", "[link=http://x]b[/link]", ":smile:"])
def test_markup_is_text(text: str) -> None:
    printed, file = console()
    printed.print(text)
    printed.print(headed(text, text))
    table = Table(title=text, show_header=False)
    table.add_row(text)
    printed.print(table)
    assert file.getvalue().count(text) == 5


def test_a_cell_has_the_lines_that_we_gave_it() -> None:
    assert lines("a\n\x1b").plain == "a\n\\x1b"
