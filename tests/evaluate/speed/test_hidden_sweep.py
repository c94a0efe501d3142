"""A sweep over hidden sizes: the fit of a group, and which time of a layer counts."""

import time
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.virtual_clock import VirtualClock
from paredown.errors import ConfigError
from paredown.evaluate.speed import hidden_sweep
from paredown.evaluate.speed.hidden_sweep import (
    GROUPS,
    HIDDEN_SIZES,
    MAX_TOKENS,
    GroupFit,
    fit_group,
    sweep_hidden,
)

TERMS = st.sampled_from([0.0, 0.25, 1.0, 3.0])


@given(TERMS, TERMS, TERMS, st.floats(1e-9, 1e-3))
@settings(max_examples=40, deadline=None)
def test_a_quadratic_without_negative_parts_is_found(
    constant: float, linear: float, square: float, unit_s: float
) -> None:
    """Each part is of about the same size in the middle of the sweep."""
    if constant + linear + square == 0:
        square = 1.0
    truth = (constant * unit_s, linear * unit_s / 1024, square * unit_s / 1024**2)
    points = [(d, truth[0] + truth[1] * d + truth[2] * d * d) for d in HIDDEN_SIZES]
    fit = fit_group("qkv", points)
    assert fit.mean_error < 1e-3
    for size, seconds in points:
        assert fit.seconds(size) == pytest.approx(seconds, rel=5e-3)
    assert min(fit.coefficients) >= 0


def test_the_error_is_the_mean_of_relative_ones() -> None:
    """Where no parabola goes through all points."""
    points = [(100, 1.0), (200, 1.0), (400, 4.0), (800, 4.0)]
    fit = fit_group("out", points)
    errors = [abs(fit.seconds(size) - seconds) / seconds for size, seconds in points]
    assert fit.mean_error == pytest.approx(sum(errors) / 4)
    assert fit.mean_error > 0.1
    assert fit.points == tuple(points)


def test_seconds_are_the_polynomial() -> None:
    fit = GroupFit(group="ff1", points=(), coefficients=(5.0, 3.0, 2.0), mean_error=0.0)
    assert [fit.seconds(x) for x in (0, 1, 10)] == [5, 10, 235]


class Slow:
    """A layer whose call takes a nanosecond for a weight and a token."""

    made: ClassVar[list[tuple[str, tuple[int, int], int]]] = []
    ran: ClassVar[list[object]] = []

    def __init__(self, format_name: str, shape: tuple[int, int], num_threads: int) -> None:
        self.shape, self.num_bytes = shape, 1 << 20
        Slow.made.append((format_name, shape, num_threads))

    def run(self, x_TI: np.ndarray, y_TO: np.ndarray) -> None:
        assert (x_TI.shape[1], y_TO.shape[1]) == self.shape[::-1]
        assert len(x_TI) == len(y_TO)
        Slow.ran.append(self)
        time.sleep(1e-9 * self.shape[0] * self.shape[1] * len(x_TI))


@pytest.fixture
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    Slow.made.clear()
    Slow.ran.clear()
    monkeypatch.setattr(hidden_sweep, "_linear", Slow)
    monkeypatch.setattr(hidden_sweep, "_COPIES_BYTES", 5 << 20)
    VirtualClock(monkeypatch)


@pytest.mark.usefixtures("_slow")
def test_groups_have_the_shapes_of_their_names() -> None:
    told: list[tuple[int, int]] = []
    found = sweep_hidden(
        num_tokens=2,
        num_threads=3,
        hidden_sizes=(16, 32, 64),
        num_rounds=2,
        on_progress=lambda *at: told.append(at),
    )
    assert told == [(number, 4) for number in range(1, 5)]
    assert (found.num_tokens, found.num_threads, found.format) == (2, 3, "bf16")
    weights = {"qkv": 3, "out": 1, "ff1": 4, "ff2": 4}
    for fit in found.fits:
        expected = weights[fit.group] * 1e-9 * 2
        assert dict(fit.points) == pytest.approx({d: expected * d * d for d in (16, 32, 64)})
        assert fit.mean_error < 1e-6
    assert [fit.group for fit in found.fits] == list(GROUPS)
    assert ("bf16", (64, 256), 3) in Slow.made, "ff2 has its wide side inside"


@pytest.mark.usefixtures("_slow")
@pytest.mark.parametrize(("copy_bytes", "num_copies"), [(1 << 20, 5), (4 << 20, 3), (1, 512)])
def test_copies_take_turns_so_that_none_is_in_a_cache(
    copy_bytes: int, num_copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sized(Slow):
        def __init__(self, *given) -> None:
            super().__init__(*given)
            self.num_bytes = copy_bytes

    monkeypatch.setattr(hidden_sweep, "_linear", Sized)
    hidden_sweep._time_linear("bf16", (8, 8), 1, 1, 2)
    assert len(Slow.made) == num_copies
    rounds = [Slow.ran[at : at + num_copies] for at in range(0, len(Slow.ran), num_copies)]
    assert len(rounds) == 3
    assert all(len(set(one)) == num_copies for one in rounds)


@pytest.mark.parametrize(
    "options",
    [
        {"format_name": "int9"},
        {"num_tokens": 0},
        {"num_tokens": MAX_TOKENS + 1},
        {"hidden_sizes": (128, 256)},
    ],
)
def test_bad_sweeps_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        sweep_hidden(num_threads=1, **options)  # type: ignore[arg-type]


def test_real_layers_are_swept_and_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_sweep, "_COPIES_BYTES", 1 << 20)
    sweep = sweep_hidden(num_threads=1, hidden_sizes=(32, 64, 96), num_rounds=2)
    assert [fit.group for fit in sweep.fits] == ["qkv", "out", "ff1", "ff2"]
    assert all(seconds > 0 for fit in sweep.fits for _, seconds in fit.points)
    assert sweep.as_json()["num_tokens"] == 1
