"""Coloured tables and lines, whose texts are escaped and never read as markup."""

from rich.console import Console, HighlighterType, JustifyMethod, OverflowMethod
from rich.style import Style
from rich.text import Text

from paredown.cli.printed import MAX_LINE_CHARS
from paredown.shown import shown


def make_console(*, stderr: bool = False) -> Console:
    return _Console(stderr=stderr, markup=False, emoji=False)


def headed(head: str, rest: str) -> Text:
    """Returns a line that begins with bold words."""
    return Text.assemble((shown(head), "bold"), shown(rest, MAX_LINE_CHARS))


def lines(text: str) -> Text:
    """Returns a cell or heading of several lines, each of them escaped."""
    return Text("\n".join(shown(line) for line in text.split("\n")))


class _Console(Console):
    """Escapes every printed text, including table cells, to a single line."""

    def render_str(
        self,
        text: str,
        *,
        style: str | Style = "",
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        emoji: bool | None = None,
        markup: bool | None = None,
        highlight: bool | None = None,
        highlighter: HighlighterType | None = None,
    ) -> Text:
        return super().render_str(
            shown(text, MAX_LINE_CHARS),
            style=style,
            justify=justify,
            overflow=overflow,
            emoji=False,
            markup=False,
            highlight=highlight,
            highlighter=highlighter,
        )
