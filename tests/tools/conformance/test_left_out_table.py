"""A test is left out by the longest name in the table that it begins with."""

import pytest
from tools.conformance.left_out_table import LeftOutTable, prefixes
from tools.conformance.outcome import LeftOut, Rule
from tools.conformance.suites import SUITES

ROUTE = LeftOut(rule=Rule.ROUTE, what="/slots")
WORDS = LeftOut(rule=Rule.WORDS, what="a joke")
TABLE = LeftOutTable(
    rows={
        "unit/a.py": ROUTE,
        "unit/b.py::test_words": WORDS,
        "unit/b.py::test_words[short]": None,
        "unit/b.py::TestBoth": ROUTE,
        "unit/b.py::TestBoth::test_one": None,
    }
)


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("unit/a.py::test_anything[x]", ROUTE),
        ("unit/a.py", ROUTE),
        ("unit/b.py", None),
        ("unit/b.py::test_words", WORDS),
        ("unit/b.py::test_words[long]", WORDS),
        ("unit/b.py::test_words[short]", None),
        ("unit/b.py::test_words_of_others", None),
        ("unit/b.py::TestBoth::test_two[a::b]", ROUTE),
        ("unit/b.py::TestBoth::test_one[a::b]", None),
    ],
)
def test_the_longest_name_counts(test: str, reason: LeftOut | None) -> None:
    assert TABLE.find(test) == reason


def test_prefixes_go_from_the_case_to_the_file() -> None:
    assert prefixes("a.py::TestX::test_y[1::2]") == [
        "a.py::TestX::test_y[1::2]",
        "a.py::TestX::test_y",
        "a.py::TestX",
        "a.py",
    ]


@pytest.mark.parametrize("name", SUITES)
def test_every_row_names_a_file_of_tests(name: str) -> None:
    for row in SUITES[name].left_out.rows:
        assert row.split("::")[0].endswith(".py")
        assert SUITES[name].runs[0].roots[0].split("/")[0] == row.split("/")[0]


@pytest.mark.parametrize("name", SUITES)
def test_a_reason_tells_its_rule_and_what_it_is_about(name: str) -> None:
    for row, reason in SUITES[name].left_out.rows.items():
        if reason is not None:
            assert str(reason).startswith(f"{reason.rule}: "), row
            assert reason.what, row
