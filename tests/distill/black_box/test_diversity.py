"""Distinct n-grams and self-BLEU beside NLTK and the definition."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.distill.black_box.diversity import distinct, diversity, self_bleu
from references import self_bleu as reference

WORDS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=9)


@given(st.lists(WORDS, min_size=2, max_size=6))
def test_self_bleu_is_the_mean_beside_all_others(texts: list[list[str]]) -> None:
    assert self_bleu(texts) == pytest.approx(reference.self_bleu(texts), rel=1e-12)


def test_the_reference_is_that_of_nltk() -> None:
    bleu = pytest.importorskip("nltk.translate.bleu_score")
    smooth = bleu.SmoothingFunction().method1
    texts = [one.split() for one in ("a b c d e", "a b c x", "d e a b c d e", "y z")]
    for at, text in enumerate(texts):
        others = texts[:at] + texts[at + 1 :]
        expected = bleu.sentence_bleu(others, text, smoothing_function=smooth)
        assert reference.bleu(text, others) == pytest.approx(expected)


def test_distinct_counts_different_n_grams() -> None:
    lists = [["a", "b", "a", "b"], ["a", "b"]]
    assert distinct(lists, 1) == 2 / 6
    assert distinct(lists, 2) == 2 / 4
    assert distinct([["a"]], 2) is None


def test_equal_texts_have_no_diversity_and_others_have() -> None:
    text = "the quick brown fox jumps over the lazy dog"
    assert diversity([text] * 5).self_bleu == pytest.approx(1.0)
    apart = diversity(["one two three four", "five six seven eight", "..."])
    assert apart.self_bleu == 0.0
    assert apart.distinct_1 == 1.0
    assert diversity([text]).self_bleu is None
    assert diversity([]).distinct_1 is None


def test_many_texts_are_compared_in_parts() -> None:
    found = diversity([f"word{number} and more of it" for number in range(2500)])
    assert found.self_bleu is not None
    assert 0 < found.self_bleu < 1
    assert not math.isnan(found.self_bleu)
