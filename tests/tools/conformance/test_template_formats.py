"""Each template of a folder gets a row that says what was found in it."""

import pytest
from tools.conformance.served_model import CHAT_TEMPLATE
from tools.conformance.template_formats import TemplateRow, markdown, template_formats

TEMPLATES = {
    "broken": "{% if %}",
    "plain": "{% for message in messages %}{{ message.content }}{% endfor %}",
    "ours": CHAT_TEMPLATE.read_text(),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TemplateRow]:
    folder = tmp_path_factory.mktemp("templates")
    for name, text in TEMPLATES.items():
        (folder / f"{name}.jinja").write_text(text)
    (folder / "README.md").write_text("no template")
    return {row.name: row for row in template_formats(folder)}


def test_every_template_has_a_row(rows: dict[str, TemplateRow]) -> None:
    assert list(rows) == sorted(TEMPLATES)


def test_a_template_without_calls_has_none(rows: dict[str, TemplateRow]) -> None:
    assert (rows["plain"].calls, rows["plain"].reasoning) == ("none", "none")


def test_the_template_that_suites_talk_to_has_both(rows: dict[str, TemplateRow]) -> None:
    assert rows["ours"].calls == "tag with JSON"
    assert rows["ours"].reasoning == "`<think>` to `</think>`"


def test_a_template_that_cannot_be_read_is_told(rows: dict[str, TemplateRow]) -> None:
    assert rows["broken"].calls.startswith("refused: ")


def test_a_bar_does_not_end_a_cell() -> None:
    row = TemplateRow(name="a", calls="none", reasoning="`<|x|>`")
    assert markdown([row]).endswith("| a | none | `<&#124;x&#124;>` |\n")
