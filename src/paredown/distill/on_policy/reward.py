"""Reward: says how good an answer to a prompt is."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from paredown.errors import TrainingError


class Reward(Protocol):
    """Scores the answers of a step at once; more is better."""

    def scores(self, prompts: Sequence[str], answers: Sequence[str]) -> Sequence[float]:
        """Returns the score of each answer to its prompt."""
        ...


@dataclass(frozen=True, kw_only=True)
class CallableReward:
    """Implements Reward by a function of one prompt and one answer."""

    function: Callable[[str, str], float]

    def scores(self, prompts: Sequence[str], answers: Sequence[str]) -> list[float]:
        pairs = zip(prompts, answers, strict=True)
        return [self.function(prompt, answer) for prompt, answer in pairs]


def checked_scores(reward: Reward, prompts: Sequence[str], answers: Sequence[str]) -> list[float]:
    """Returns the scores. Raises TrainingError where the reward fails, leaves an answer out, or
    gives something that is no finite number."""
    try:
        found = [float(score) for score in reward.scores(prompts, answers)]
    except TrainingError:
        raise
    except Exception as error:  # whatever a stranger's function raises
        raise TrainingError(
            "the reward failed",
            seen=f"{type(error).__name__}: {error}",
            remedy="Mend it; the same command goes on from the last step.",
        ) from error
    if len(found) != len(answers):
        raise TrainingError(
            "the reward must score each answer",
            seen=f"{len(found)} scores, {len(answers)} answers",
            remedy="Return one number for each; the same command goes on from the last step.",
        )
    for score, answer in zip(found, answers, strict=True):
        if not math.isfinite(score):
            raise TrainingError(
                "a reward is no finite number",
                seen=f"{score} for {answer}",
                remedy="Return a finite number; the same command goes on from the last step.",
            )
    return found
