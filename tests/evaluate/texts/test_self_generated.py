"""Text that a model makes for its own training: sure at first, then drawn from the likeliest."""

import numpy as np
import pytest

from fakes.toy_executor import ToyExecutor, reference_logits
from paredown.evaluate.texts.self_generated import choose_token, self_generated_windows

VOCAB_SIZE = 512


def test_first_tokens_are_the_likeliest_and_others_are_among_them() -> None:
    windows_NT = self_generated_windows(ToyExecutor(num_pages=64), 6, 24, top_k=4)
    assert windows_NT.shape == (6, 24)
    assert len(set(windows_NT[:, 0])) > 1
    num_drawn = 0
    for ids in windows_NT.tolist():
        for place, token in enumerate(ids[1:]):
            logits_V = reference_logits(ids[: place + 1], VOCAB_SIZE)
            rank = int((logits_V > logits_V[token]).sum())
            assert rank < (1 if place < 3 else 4)
            num_drawn += rank > 0
    assert num_drawn > 20


def test_texts_do_not_depend_on_how_many_are_made_at_a_time() -> None:
    one, many = (self_generated_windows(ToyExecutor(num_pages=pages), 5, 12) for pages in (16, 64))
    assert np.array_equal(one, many)
    other = self_generated_windows(ToyExecutor(num_pages=64), 5, 12, seed=7)
    assert not np.array_equal(other, many)


@pytest.mark.parametrize("top_k", [3, 1000])
def test_tokens_are_drawn_by_their_probabilities(top_k: int) -> None:
    logits_V = np.log(np.array([0.5, 0.05, 0.3, 0.1, 0.05], np.float32))
    rng = np.random.default_rng(0)
    counts = np.bincount([choose_token(logits_V, rng, top_k) for _ in range(4000)], minlength=5)
    expected = np.array([0.5, 0, 0.3, 0.1, 0]) / 0.9 if top_k == 3 else np.exp(logits_V)
    np.testing.assert_allclose(counts / 4000, expected, atol=0.03)
