"""Writes the parts of docs/guide/ that follow from the code: options, fields, names, codes.

    python -m tools.write_reference

Text around the parts is written by hand and stays as it is (tools/reference/page.py).
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference import environment, http_fields, json_fields, options, python_names
from tools.reference.page import fill

GUIDE = Path(__file__).parent.parent / "docs" / "guide"
PAGES: Mapping[str, Callable[[], dict[str, str]]] = {
    "environment.md": environment.blocks,
    "http.md": http_fields.blocks,
    "json.md": json_fields.blocks,
    "options.md": options.blocks,
    "python.md": python_names.blocks,
}


def written(name: str) -> str:
    """A page as it should be now. Raises ValueError for what the tool does not know."""
    return fill((GUIDE / name).read_text("utf-8"), PAGES[name]())


def main() -> None:
    for name in PAGES:
        page = written(name)
        if page != (GUIDE / name).read_text("utf-8"):
            (GUIDE / name).write_text(page, "utf-8")
            print(f"written: docs/guide/{name}")


if __name__ == "__main__":
    main()
