"""A page of the guide: text that people write around blocks that are written from the code.

A block stands between two comments, which no reader sees:

    <!-- generated: NAME -->
    <!-- end of NAME -->
"""

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

MOST_COLUMNS = 120
MOST_IN_A_CELL = 120


def fill(page: str, blocks: Mapping[str, str]) -> str:
    """The page with each of its blocks as the code says it now. Raises ValueError for a block
    without a place, and for a place without a block."""
    places = re.findall(r"^<!-- generated: (.+) -->$", page, re.MULTILINE)
    if sorted(places) != sorted(blocks):
        raise ValueError(f"the page has places for {sorted(places)}, the code {sorted(blocks)}")
    for name, block in blocks.items():
        begin, end = f"<!-- generated: {name} -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(begin, 1)
        _, after = rest.split(end, 1)
        page = f"{before}{begin}{block.strip()}\n{end}{after}"
    return page


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells that are too long end in an ellipsis."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def cell(text: str) -> str:
    one_line = " ".join(text.split()).replace("|", "\\|")
    if len(one_line) <= MOST_IN_A_CELL:
        return one_line
    cut = one_line[: MOST_IN_A_CELL - 5].rsplit(" ", 1)[0]
    return f"{cut} ...{'`' if cut.count('`') % 2 else ''}"


def item(text: str) -> str:
    """An entry of a list, in lines that fit."""
    return wrapped(f"- {text}", indent="  ")


def wrapped(text: str, *, width: int = MOST_COLUMNS, indent: str = "") -> str:
    """A paragraph in lines that fit; all but the first begin with `indent`."""
    lines = textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def first_sentence(docstring: str | None) -> str:
    """The first sentence of a docstring's first paragraph."""
    paragraph = " ".join((docstring or "").strip().split("\n\n", 1)[0].split())
    found = re.match(r".*?[.](?= [A-Z`]|$)", paragraph)
    return found[0] if found else paragraph.rstrip(":")


def docstring(kind: type) -> Iterator[str]:
    """Paragraphs of a docstring. Lines that are set in columns stay as they are."""
    text = inspect.getdoc(kind) or ""
    if text.startswith(f"{kind.__name__}("):  # which dataclasses write where nobody else did
        return
    for paragraph in text.split("\n\n"):
        is_in_columns = re.search(r"^`\w+`  ", paragraph, re.MULTILINE)
        joined = " ".join(paragraph.split())
        yield f"```text\n{paragraph}\n```" if is_in_columns else wrapped(joined)
