"""What a step of our engine takes, fitted to steps that were recorded, and brought to the speed of
others.

Seconds of a step are a sum: of its tokens, on a line between a few numbers of them, of its
requests, of those that get their first token, of keys that are read and of query-key pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.recorded_server import RecordedStep
from paredown.cost.least_squares import least_squares
from paredown.cost.step_cost import StepLoad

# Between these numbers of tokens a step's time is on a line.
KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
# Steps of more tokens hold a prompt. What slows a machine's short steps, the caches that others use
# and the interpreter's lock, does not slow these as much.
FEW_TOKENS = 16
NUM_FITS = 4
HELD_UP = 3.0


@dataclass(frozen=True)
class FittedStep:
    """Implements StepCost. The factors are of steps of up to FEW_TOKENS, and of others."""

    coefficients: list[float]
    few_factor: float = 1.0
    many_factor: float = 1.0

    def step_s(self, step: StepLoad) -> float:
        base_s = sum(a * b for a, b in zip(self.coefficients, features(step), strict=True))
        return base_s * (self.few_factor if has_few_tokens(step) else self.many_factor)


def has_few_tokens(step: StepLoad) -> bool:
    return step.num_tokens <= FEW_TOKENS


def features(step: StepLoad) -> tuple[float, ...]:
    """A hat over each knot, then what goes with requests, keys and pairs."""
    hats = [0.0] * len(KNOTS)
    num_tokens = min(max(step.num_tokens, KNOTS[0]), KNOTS[-1])
    above = next(i for i, knot in enumerate(KNOTS) if knot >= num_tokens)
    if num_tokens == KNOTS[above]:
        hats[above] = 1.0
    else:
        low, high = KNOTS[above - 1], KNOTS[above]
        share = (num_tokens - low) / (high - low)
        hats[above - 1], hats[above] = 1 - share, share
    counts = (step.num_requests, step.num_first_tokens)
    return (*hats, *counts, step.kv_tokens_read, step.attention_pairs)


def fit(steps: Sequence[RecordedStep]) -> FittedStep:
    """By errors relative to the fit before: relative to the steps themselves, those that happened
    to be fast would count for more, and the fit would be below the mean. Without the few steps that
    something else held up."""
    kept, weights = list(steps), [1 / one.seconds for one in steps]
    for _ in range(NUM_FITS):
        fitted = FittedStep(
            least_squares(
                [features(one.load) for one in kept], [one.seconds for one in kept], weights
            )
        )
        kept = [one for one in steps if one.seconds < HELD_UP * fitted.step_s(one.load)]
        weights = [1 / fitted.step_s(one.load) for one in kept]
    return fitted


def scaled(fitted: FittedStep, steps: Sequence[RecordedStep]) -> FittedStep:
    """To the speed of these. Means, not medians: what holds up a step holds up answers, too."""
    few = [one for one in steps if has_few_tokens(one.load)]
    many = [one for one in steps if not has_few_tokens(one.load)]
    return FittedStep(
        fitted.coefficients,
        few_factor=_slower(fitted, few or steps),
        many_factor=_slower(fitted, many or steps),
    )


def _slower(fitted: FittedStep, steps: Sequence[RecordedStep]) -> float:
    return sum(one.seconds for one in steps) / sum(fitted.step_s(one.load) for one in steps)
