"""The rule by which our next tokens are held against llama.cpp's."""

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="installed by `make bench`")

from benchmarks.real.next_tokens import NextTokens, compare_rows


def test_a_tie_is_nearer_than_twice_the_largest_difference() -> None:
    theirs = np.array([[1.0, 0.9, 0.0], [1.0, 0.9, 0.0], [1.0, 0.0, 0.0]], np.float32)
    ours = np.array([[1.0, 0.9, 0.0], [0.95, 1.0, 0.0], [0.0, 1.9, 0.0]], np.float32)
    # The third differs by 1.9 at most, and our two best lie 1.9 apart: a tie by the rule.
    num_same, num_near, _, largest = compare_rows(ours, theirs)
    assert (num_same, num_near, largest) == (1, 2, pytest.approx(1.9))


def test_the_same_logits_have_no_divergence() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 11)).astype(np.float32)
    assert compare_rows(rows, rows) == (5, 0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "is_right", "is_near"),
    [
        ({}, True, True),
        ({"num_same": 97, "num_near": 3}, True, False),
        ({"num_near": 1}, False, True),
        ({"kl_divergence": 0.004}, True, False),
        ({"num_other_prompts": 1}, False, True),
    ],
)
def test_what_is_right_and_what_is_near(
    changes: dict[str, float], is_right: bool, is_near: bool
) -> None:
    good = {
        "num_tokens": 100,
        "num_same": 98,
        "num_near": 2,
        "kl_divergence": 0.001,
        "max_difference": 0.1,
        "num_other_prompts": 0,
        "our_error": 0.001,
        "their_error": 0.001,
    }
    found = NextTokens(**(good | changes))
    assert (found.is_right, found.is_near) == (is_right, is_near)
