"""Trained candidates of a search: QAD of few bits, each with the minutes that are given."""

import pytest

from paredown.errors import ConfigError
from paredown.optimize.optimize import optimize
from paredown.optimize.optimize_config import OptimizeConfig
from paredown.optimize.trained_candidates import trained_recipes


def test_each_trains_its_codes_for_the_minutes() -> None:
    recipes = trained_recipes("-head-int8", 5)
    assert [one.name for one in recipes] == [
        "qad-int4-g128-g64-g32-head-int8-5m",
        "qad-int3-g128-g64-g32-head-int8-5m",
    ]
    steps = [one.train_step for one in recipes]
    assert all(step is not None and (step.method, step.minutes) == ("qad", 5) for step in steps)


def test_minutes_that_are_none_are_refused_before_work() -> None:
    with pytest.raises(ConfigError, match="budget"):
        optimize(None, OptimizeConfig(train_minutes=0.0))


def test_formats_that_are_named_are_all() -> None:
    with pytest.raises(ConfigError, match="--formats names all"):
        optimize(None, OptimizeConfig(train_minutes=1.0, formats=("int8",)))
