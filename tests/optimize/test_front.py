"""The front and the choice, as properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.bounds import Bounds
from paredown.optimize.choose import EQUALLY_FAST, choose, parse_quality_loss
from paredown.optimize.front import Point, mark_front, on_front

# Few values, so that ties are common.
figures = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
spread_figures = st.tuples(st.floats(1, 2), st.integers(1, 100), st.floats(1, 100))


def point(values) -> Point:
    perplexity, size, speed = values
    return Point(loss=perplexity, file_bytes=size, rate=speed)


def measurement(name: str, values) -> Measurement:
    perplexity, size, speed = values
    return Measurement(
        name=name,
        linear_dtype="int4",
        bits_per_weight=4.0,
        file_bytes=size,
        perplexity=float(perplexity),
        decode_tokens_per_s=float(speed),
    )


REFERENCE = measurement("original", (2, 100, 10))


@given(st.lists(figures, min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_the_front_is_what_nothing_dominates(values) -> None:
    points = [point(one) for one in values]
    marks = on_front(points)
    assert any(marks)
    for mark, one in zip(marks, values, strict=True):
        dominated = any(
            all((p <= q, s <= r, v >= w)) and (p, s, v) != (q, r, w)
            for (p, s, v) in values
            for (q, r, w) in [one]
        )
        assert mark != dominated


@given(st.lists(figures, min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_whatever_is_off_the_front_is_dominated_by_something_on_it(values) -> None:
    points = [point(one) for one in values]
    front = [one for one, mark in zip(points, on_front(points), strict=True) if mark]
    for one in points:
        assert one in front or any(other.dominates(one) for other in front)
        assert not one.dominates(one)


@given(figures, figures)
@settings(max_examples=100, deadline=None)
def test_two_points_never_dominate_each_other(a, b) -> None:
    assert not (point(a).dominates(point(b)) and point(b).dominates(point(a)))


def test_what_is_not_a_number_is_never_better() -> None:
    broken = point((float("nan"), 1, 10))
    assert not broken.dominates(point((9.0, 1, 10)))
    assert point((9.0, 1, 10)).dominates(broken)


@given(st.lists(st.one_of(figures, spread_figures), min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_the_choice_keeps_its_promises(values) -> None:
    candidates = [measurement(f"c{i}", one) for i, one in enumerate(values)]
    chosen = choose(candidates, REFERENCE, Bounds(max_quality_loss=0.5)).chosen
    good = [one for one in candidates if one.perplexity <= 3.0]
    if not good:
        assert chosen is None
        return
    assert chosen in good
    fastest = max(one.decode_tokens_per_s for one in good)
    assert chosen.decode_tokens_per_s >= EQUALLY_FAST * fastest
    for one in good:
        if one.decode_tokens_per_s >= EQUALLY_FAST * fastest:
            assert chosen.file_bytes <= one.file_bytes
    marked = {one.name: one.on_front for one in mark_front(candidates)}
    assert marked[chosen.name]


@pytest.mark.parametrize(("speed_of_the_smaller", "chosen"), [(96, "smaller"), (94, "larger")])
def test_speeds_within_five_percent_are_equal(speed_of_the_smaller: float, chosen: str) -> None:
    larger = measurement("larger", (2, 20, 100))
    smaller = measurement("smaller", (2, 10, speed_of_the_smaller))
    best = choose([larger, smaller], REFERENCE, Bounds(max_quality_loss=0.01)).chosen
    assert best is not None
    assert best.name == chosen


def test_loss_is_read_as_a_share_or_a_percentage() -> None:
    assert parse_quality_loss("1%") == 0.01
    assert parse_quality_loss("0.025") == 0.025
    assert parse_quality_loss(" 0 % ") == 0


@pytest.mark.parametrize("text", ["-1%", "one", "", "nan", "inf", "%"])
def test_other_losses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="max-quality-loss"):
        parse_quality_loss(text)
