"""The page about real models: sections are replaced one by one, and no figure is lost."""

from benchmarks.real.page import as_json, markdown, merge
from benchmarks.real.row import Row, Section

MACHINE = {"name": "a CPU", "num_threads": 2, "isa": "avx2", "commit": "abc", "date": "2026-01-01"}


def section(title: str, found: str, meets: bool | None = True) -> Section:
    row = Row(name="model", asked="all", found=found, meets=meets, decides=True)
    return Section(title=title, protocol="How.", rows=[row])


def test_a_section_that_was_measured_again_takes_the_place_of_the_old_one() -> None:
    old = merge(None, as_json([section("A", "1"), section("B", "2")], MACHINE))
    new = merge(old, as_json([section("A", "3")], {**MACHINE, "commit": "def"}))
    assert [one["title"] for one in new["sections"]] == ["A", "B"]
    assert [one["rows"][0]["found"] for one in new["sections"]] == ["3", "2"]
    assert [one["machine"]["commit"] for one in new["sections"]] == ["def", "abc"]


def test_the_page_says_what_was_not_met() -> None:
    page = markdown(merge(None, as_json([section("A", "1", meets=False)], MACHINE)))
    assert "| model | all | 1 | **no** | yes |" in page
    assert "commit abc, a CPU, 2 threads, avx2" in page


def test_a_section_passes_when_every_row_that_decides_meets_what_is_asked() -> None:
    aim = Row(name="aim", asked="more", found="less", meets=False)
    must = Row(name="must", asked="more", found="more", meets=True, decides=True)
    assert Section(title="A", protocol="", rows=[aim, must]).passed
    assert not section("A", "1", meets=False).passed
