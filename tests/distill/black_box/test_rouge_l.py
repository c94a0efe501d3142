"""ROUGE-L beside the package rouge-score, and the tasks that are unlike all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from paredown.distill.black_box.rouge_l import NovelTasks, rouge_l, words

WORDS = st.lists(st.sampled_from(["the", "Cat", "sat", "on", "a", "mat,", "x_1", "-"]), max_size=80)
TEXTS = WORDS.map(" ".join)
SCORER = RougeScorer(["rougeL"])


@given(TEXTS, TEXTS)
def test_it_is_that_of_rouge_score(one: str, other: str) -> None:
    expected = SCORER.score(one, other)["rougeL"].fmeasure
    assert rouge_l(words(one), words(other)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Zoë's naïve café_2", ["zoë", "s", "naïve", "café", "2"]),
        ("東京タワー is high", [*"東京タワー", "is", "high"]),
        ("Привет, мир!", ["привет", "мир"]),
    ],
)
def test_words_of_any_script(text: str, found: list[str]) -> None:
    assert words(text) == found


def test_words_that_come_again_count_each_time() -> None:
    novel = NovelTasks(0.7)
    assert novel.add("a a a a b")
    assert not novel.add("a a a a c")
    assert novel.add("a b c d e")


@given(st.lists(TEXTS, max_size=12), st.sampled_from([0.0, 0.3, 0.7, 1.0]))
def test_no_two_that_are_kept_are_alike(texts: list[str], likeness: float) -> None:
    novel = NovelTasks(likeness)
    kept: list[str] = []
    for text in texts:
        alike = any(rouge_l(words(text), words(other)) >= likeness for other in kept)
        assert novel.add(text) == (not alike)
        kept += [] if alike else [text]
    assert novel.texts == kept
