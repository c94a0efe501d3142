"""Tables and lines with colours: every text in them is escaped, and no markup in them is obeyed."""

from rich.console import Console, HighlighterType, JustifyMethod, OverflowMethod
from rich.style import Style
from rich.text import Text

from paredown.cli.printed import MAX_LINE_CHARS
from paredown.shown import shown


def make_console(*, stderr: bool = False) -> Console:
    return _Console(stderr=stderr, markup=False, emoji=False)


def headed(head: str, rest: str) -> Text:
    """A line that begins with bold words."""
    return Text.assemble((shown(head), "bold"), shown(rest, MAX_LINE_CHARS))


def lines(text: str) -> Text:
    """A cell or heading of several lines, each of them escaped."""
    return Text("\n".join(shown(line) for line in text.split("\n")))


class _Console(Console):
    """Every text that is printed, a cell of a table too, becomes one escaped line here."""

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
