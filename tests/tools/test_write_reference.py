"""Generated pages of the guide say what the code says."""

import pytest
from tools.reference import http_fields
from tools.reference.json_fields import json_type
from tools.reference.page import (
    MOST_COLUMNS,
    MOST_IN_A_CELL,
    cell,
    fill,
    first_sentence,
    item,
    table,
)
from tools.write_reference import GUIDE, PAGES, written

from paredown.cli.main import VERBS
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.completion import CompletionRequest


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_the_code_is(name: str) -> None:
    remedy = "run `python -m tools.write_reference`"
    assert (GUIDE / name).read_text("utf-8") == written(name), remedy


def test_every_verb_and_every_field_of_a_request_has_its_entry() -> None:
    options, fields = (GUIDE / "options.md").read_text(), (GUIDE / "http.md").read_text()
    assert [verb for verb in VERBS if f"\n## {verb}\n" not in options] == []
    names = {*CompletionRequest.model_fields, *ChatRequest.model_fields}
    assert [name for name in sorted(names) if f"\n| `{name}` |" not in fields] == []


def test_text_around_a_block_is_kept_and_the_block_is_replaced() -> None:
    page = "above\n<!-- generated: a -->\nold\n<!-- end of a -->\nbelow\n"
    assert fill(page, {"a": "new\n"}) == page.replace("old", "new")
    assert fill(fill(page, {"a": "new"}), {"a": "old"}) == page


@pytest.mark.parametrize("blocks", [{}, {"b": "new"}, {"a": "new", "b": "new"}])
def test_a_block_without_a_place_is_refused(blocks: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="places"):
        fill("<!-- generated: a -->\n<!-- end of a -->\n", blocks)


def test_a_field_that_nobody_explained_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(http_fields.MEANINGS, "seed")
    with pytest.raises(ValueError, match="seed is new"):
        http_fields.blocks()


@pytest.mark.parametrize(
    "text", ["a word and " * 40, "`one-long-option-that-is-not-cut`: " + "more words " * 30]
)
def test_lines_and_cells_fit(text: str) -> None:
    assert max(map(len, item(text).splitlines())) <= MOST_COLUMNS
    assert len(cell(text)) <= MOST_IN_A_CELL
    assert table(("a",), [("x | y",)]).endswith("| x \\| y |")


def test_first_sentences() -> None:
    assert first_sentence("One, e.g. this. Two.\n\nThree.") == "One, e.g. this."
    assert first_sentence(None) == ""


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("tuple[Path, ...] | None", "list of text or null"),
        ("dict[str, dict[str, int]]", "object of object of integer"),
        ("Literal['a', 'b']", "text"),
        ("list[list[float]]", "list of list of number"),
    ],
)
def test_types_in_the_words_of_json(annotation: str, words: str) -> None:
    assert json_type(annotation) == words
