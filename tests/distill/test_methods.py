"""Methods are found by name, and check the numbers that they have."""

import math

import pytest

from paredown.distill.methods import METHODS, MethodOptions, find_method
from paredown.errors import ConfigError


@pytest.mark.parametrize("weight", [-0.1, math.inf, math.nan])
def test_a_weight_out_of_range_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="weight"):
        find_method("soft-label").check(MethodOptions(label_weight=weight))


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("jsd", {"beta": 1.5}, "mixture"),
        ("slim", {"top_share": 0.0}, "share of the teacher's tokens"),
        ("slim", {"alpha": -1.0}, "weight"),
        ("gkd", {"own_share": 1.1}, "--own-share"),
        ("gkd", {"beta": -1.0}, "mixture"),
        ("minillm", {"teacher_share": math.nan}, "--teacher-share"),
        ("kl", {"temperature": 0.0}, "temperature"),
        ("tinybert", {"temperature": 0.0}, "temperature"),
        ("weights", {"feature_weight": -1.0}, "weight of the teacher's features"),
        ("boundaries", {"feature_weight": math.inf}, "weight of the teacher's features"),
        ("gradients", {"layer_map": "second"}, "map of layers"),
        ("reward", {}, "no reward"),
        ("reward", {"reward": "nonsense"}, "neither a function nor an address"),
        ("reward", {"reward": "x:y", "num_answers": 1}, "compared with others"),
        ("reward", {"reward": "x:y", "kl_weight": -1.0}, "divergence from the teacher"),
        ("reward", {"reward": "x:y", "warm_share": 2.0}, "--warm-share"),
    ],
)
def test_numbers_out_of_range_are_refused(
    method: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        find_method(method).check(MethodOptions(**options))  # type: ignore[arg-type]


def test_sampled_texts_need_tokens() -> None:
    with pytest.raises(ConfigError, match="prompt and new tokens"):
        MethodOptions(new_tokens=0)


def test_the_text_alone_needs_no_teacher() -> None:
    assert {name for name, method in METHODS.items() if not method.needs_teacher} == {"hard-label"}


def test_an_unknown_method_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(ConfigError, match="soft-label"):
        find_method("softlabel")


def test_what_a_teacher_once_predicted_is_not_enough_for_features() -> None:
    alone = {
        name for name, method in METHODS.items() if method.needs_teacher and method.loss is None
    }
    assert alone == {"gkd", "minillm", "reward", "tinybert", "weights", "gradients", "boundaries"}
