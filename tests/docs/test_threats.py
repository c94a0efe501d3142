"""The threat model and tests/security name the same."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "internals" / "security.md"
ROW = re.compile(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def rows() -> list[tuple[str, str]]:
    heads = ("guard", "---")
    return [row for row in ROW.findall(PAGE.read_text()) if row[0].strip() not in heads]


def test_every_file_of_tests_of_security_is_in_the_table() -> None:
    named = {name for _, tests in rows() for name in re.findall(r"test_\w+\.py", tests)}
    there = {path.name for path in (ROOT / "tests" / "security").glob("test_*.py")}
    assert there <= named


def test_every_row_names_a_guard_and_a_test() -> None:
    assert len(rows()) > 20
    for guard, tests in rows():
        assert "`" in guard or "](" in guard
        assert re.search(r"`[\w/.]*(test_\w+\.py|check_\w+\.cpp)`", tests)
