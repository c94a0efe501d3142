"""Pages have short lines and short table cells, and their links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = tuple(sorted((ROOT / "docs").rglob("*.md")))
MOST_COLUMNS = 120
MOST_IN_A_CELL = 120

FENCE = re.compile(r"^ *```")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def outside_of_fences(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1."""
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            is_fenced = not is_fenced
        elif not is_fenced:
            yield number, line


def too_wide(text: str) -> list[str]:
    """Finds lines and cells that are too wide, with their line numbers."""
    found = []
    for number, line in outside_of_fences(text):
        if not line.startswith("|"):
            if len(line) > MOST_COLUMNS:
                found.append(f"line {number} has {len(line)} columns")
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        wide = [cell for cell in cells if len(cell) > MOST_IN_A_CELL]
        found += [f"line {number} has a cell of {len(cell)} characters" for cell in wide]
    return found


def anchor(heading: str) -> str:
    """Returns the name by which a link finds a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def leads_somewhere(link: str, page: Path) -> bool:
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists():
        return False
    return not heading or heading in map(anchor, HEADING.findall(target.read_text()))


def lost_links(text: str, page: Path) -> list[str]:
    """Relative links to a file or a heading that is not there."""
    prose = "\n".join(line for _, line in outside_of_fences(text))
    links = [link for link in LINK.findall(prose) if "://" not in link]
    return [link for link in links if not leads_somewhere(link, page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_narrow(page: Path) -> None:
    assert not too_wide(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert not lost_links(page.read_text(), page)


def test_wide_lines_and_cells_are_found() -> None:
    wide, fits = "x" * 121, "x" * 120
    text = f"{fits}\n| {fits} | {fits} |\n```\n{wide}\n```\n{wide}\n| y | {wide} |\n"
    assert too_wide(text) == ["line 6 has 121 columns", "line 7 has a cell of 121 characters"]


def test_a_lost_link_is_found() -> None:
    page = ROOT / "docs" / "methods" / "gptq.md"
    text = "[a](awq.md) [b](gone.md) [c](../log.md#quantization) [d](../log.md#gone) [e](https://x)"
    assert lost_links(text, page) == ["gone.md", "../log.md#gone"]
