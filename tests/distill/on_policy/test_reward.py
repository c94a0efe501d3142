"""Whatever a reward does wrong is told."""

from collections.abc import Sequence

import pytest

from paredown.distill.on_policy.reward import CallableReward, checked_scores
from paredown.errors import TrainingError

PROMPTS, ANSWERS = ["a", "b"], ["cd", "efg"]


class Fixed:
    def __init__(self, scores: Sequence[float]) -> None:
        self._scores = scores

    def scores(self, prompts: Sequence[str], answers: Sequence[str]) -> Sequence[float]:
        return self._scores


def test_each_answer_is_scored_with_its_prompt() -> None:
    reward = CallableReward(function=lambda prompt, answer: ord(prompt) + len(answer))
    assert checked_scores(reward, PROMPTS, ANSWERS) == [99.0, 101.0]


@pytest.mark.parametrize("scores", [[1.0], [1.0, 2.0, 3.0], []])
def test_an_answer_without_a_score_is_told(scores: list[float]) -> None:
    with pytest.raises(TrainingError, match=f"{len(scores)} scores, 2 answers"):
        checked_scores(Fixed(scores), PROMPTS, ANSWERS)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_no_finite_number_is_told(value: float) -> None:
    with pytest.raises(TrainingError, match=f"{value} for efg"):
        checked_scores(Fixed([1.0, value]), PROMPTS, ANSWERS)


def test_a_reward_that_raises_is_told() -> None:
    def broken(prompt: str, answer: str) -> float:
        raise KeyError("no such word")

    with pytest.raises(TrainingError, match="KeyError: 'no such word'") as raised:
        checked_scores(CallableReward(function=broken), PROMPTS, ANSWERS)
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_score_that_is_no_number_is_told() -> None:
    with pytest.raises(TrainingError, match="the reward failed"):
        checked_scores(Fixed(["good", "bad"]), PROMPTS, ANSWERS)  # type: ignore[list-item]
