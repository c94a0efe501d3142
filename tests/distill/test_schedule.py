"""Learning rates and budgets."""

import itertools
import math

import pytest

from paredown.distill.budget import Budget
from paredown.distill.schedule import Schedule
from paredown.distill.train_config import TrainConfig
from paredown.errors import ConfigError


def test_the_rate_rises_to_its_peak_and_falls_to_its_end() -> None:
    schedule = Schedule(learning_rate=1e-3, final_learning_rate=1e-4, warmup_share=0.1)
    rates = [schedule.rate(step / 100) for step in range(101)]
    assert all(a < b for a, b in itertools.pairwise(rates[:11]))
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert rates[5] == pytest.approx(5e-4)
    assert rates[10] == 1e-3
    assert rates[55] == pytest.approx((1e-3 + 1e-4) / 2)
    assert rates[100] == pytest.approx(1e-4)
    assert 0 < rates[0] < rates[1]


def test_without_warm_up_it_begins_at_its_peak() -> None:
    assert Schedule(learning_rate=1.0, final_learning_rate=0.0, warmup_share=0.0).rate(0) == 1.0


@pytest.mark.parametrize(
    "numbers", [(0, 0, 0.1), (-1, -2, 0.1), (math.nan, 0, 0), (1, 2, 0), (1, 0, 1), (1, 0, -0.1)]
)
def test_rates_out_of_range_are_refused(numbers: tuple[float, float, float]) -> None:
    with pytest.raises(ConfigError):
        Schedule(learning_rate=numbers[0], final_learning_rate=numbers[1], warmup_share=numbers[2])


@pytest.mark.parametrize(
    ("num_tokens", "minutes"),
    [(None, None), (5, 5.0), (0, None), (-3, None), (None, 0.0), (None, math.nan)],
)
def test_a_budget_is_one_positive_number(num_tokens: int | None, minutes: float | None) -> None:
    with pytest.raises(ConfigError):
        Budget(num_tokens=num_tokens, minutes=minutes)
    with pytest.raises(ConfigError):
        TrainConfig(num_tokens=num_tokens, minutes=minutes)


def test_a_budget_of_tokens_has_whole_steps() -> None:
    budget = Budget(num_tokens=1_000)
    assert budget.progress(4, 1e9, 250) == 1.0
    assert budget.progress(3, 1e9, 250) == 0.75
    assert budget.progress(3, 0.0, 300) == 1.0
    budget.check(1_000)
    with pytest.raises(ConfigError, match="shorter than one step"):
        budget.check(1_001)


def test_a_budget_of_minutes_is_used_up_by_work() -> None:
    assert Budget(minutes=2.0).progress(10**6, 30.0, 8) == 0.25
    assert Budget(minutes=2.0).progress(0, 121.0, 8) == 1.0
