"""The format of calls and reasoning that is found in each of a folder's chat templates.

    python -m tools.conformance.template_formats FOLDER

FOLDER holds templates as *.jinja, such as models/templates of llama.cpp.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paredown.errors import ParedownError
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.text.chat_templates import ChatTemplates
from paredown.shown import shown

_HEAD = ("template", "calls of functions", "reasoning")
_NONE = "none"
# Templates write these where a checkpoint's tokenizer would say what they are.
_SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
_MAX_SHOWN_CHARS = 60


@dataclass(frozen=True, kw_only=True)
class TemplateRow:
    """A template and what was found in it, in words."""

    name: str
    calls: str
    reasoning: str

    def cells(self) -> tuple[str, ...]:
        return self.name, self.calls, self.reasoning


def template_formats(folder: Path) -> list[TemplateRow]:
    """Returns a row for each template, in the order of their names."""
    return [_row(path) for path in sorted(folder.glob("*.jinja"))]


def _row(path: Path) -> TemplateRow:
    templates = ChatTemplates(path.read_text("utf-8"), str(path))
    try:
        found = TurnFormat.of(templates, _SPECIAL_TOKENS)
    except ParedownError as error:
        refused = f"refused: {shown(str(error), _MAX_SHOWN_CHARS)}"
        return TemplateRow(name=path.stem, calls=refused, reasoning=refused)
    calls = _NONE if found.tool_format is None else found.tool_format.kind
    reasoning = _NONE
    if found.reasoning is not None:
        reasoning = f"`{found.reasoning.start.strip()}` to `{found.reasoning.end.strip()}`"
    return TemplateRow(name=path.stem, calls=calls, reasoning=reasoning)


def markdown(rows: Iterable[TemplateRow]) -> str:
    lines = [_HEAD, ("---",) * len(_HEAD), *(row.cells() for row in rows)]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    rows = template_formats(parser.parse_args().folder)
    print(markdown(rows), end="")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
