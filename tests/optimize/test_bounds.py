"""What meets the bounds, what comes nearest, and what a search may still start."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimize.test_front import REFERENCE, measurement
from paredown.errors import ConfigError
from paredown.optimize.bounds import DEFAULT_MAX_QUALITY_LOSS, Bounds, within_default
from paredown.optimize.choose import choose
from paredown.optimize.deadline import Deadline, OutOfTimeError

LIMITS = st.fixed_dictionaries(
    {
        "max_quality_loss": st.none() | st.floats(0, 3),
        "max_mb": st.none() | st.floats(0, 40e-6),
        "min_decode": st.none() | st.floats(1, 40),
    }
)
FIGURES = st.tuples(st.integers(1, 9), st.integers(1, 30), st.integers(1, 30))


@given(LIMITS, st.lists(FIGURES, min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_what_is_chosen_meets_every_bound_and_nothing_else_would_be_better(limits, values) -> None:
    bounds = within_default(Bounds(**limits))
    candidates = [measurement(f"c{i}", one) for i, one in enumerate(values)]
    choice = choose(candidates, REFERENCE, bounds)

    def meets(one) -> bool:
        return (
            (
                bounds.max_quality_loss is None
                or one.perplexity / REFERENCE.perplexity - 1 <= bounds.max_quality_loss
            )
            and (bounds.max_mb is None or one.file_bytes / 1e6 <= bounds.max_mb)
            and (bounds.min_decode is None or one.decode_tokens_per_s >= bounds.min_decode)
        )

    good = [one for one in candidates if meets(one)]
    if good:
        assert choice.chosen in good
        assert choice.nearest is None
        if bounds.has_resources:
            assert choice.chosen.perplexity == min(one.perplexity for one in good)
    else:
        assert choice.chosen is None
        assert choice.nearest in candidates
        assert choice.missed


def test_the_nearest_tells_which_bound_stands_in_the_way() -> None:
    far = measurement("far", (2, 40, 30))
    near = measurement("near", (2, 22, 30))
    choice = choose([far, near], REFERENCE, Bounds(max_mb=20e-6, min_decode=20))
    assert choice.nearest is near
    assert [gap.bound for gap in choice.missed] == ["--max-mb"]
    assert choice.missed[0].excess == pytest.approx(1.1)


def test_the_default_loss_holds_where_nothing_is_bounded() -> None:
    assert within_default(Bounds()).max_quality_loss == DEFAULT_MAX_QUALITY_LOSS
    assert within_default(Bounds(max_mb=1)).max_quality_loss is None
    assert within_default(Bounds(max_kl=0.1)).max_quality_loss is None


@pytest.mark.parametrize(
    "limits", [{"max_kl": -1.0}, {"max_mb": float("nan")}, {"prompt_tokens": 0}]
)
def test_senseless_bounds_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="is out of range"):
        Bounds(**limits)


def test_a_deadline_keeps_time_for_what_comes_after_the_search() -> None:
    now = [100.0]
    deadline = Deadline(10, lambda: now[0])
    assert deadline.allows(500)
    assert not deadline.allows(590)
    now[0] += 400
    assert not deadline.allows(200)
    deadline.check()
    now[0] += 200
    with pytest.raises(OutOfTimeError):
        deadline.check()
    assert Deadline(None).allows(1e9)
    with pytest.raises(ConfigError, match="--minutes"):
        Deadline(0)
