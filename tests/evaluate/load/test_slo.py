"""Limits of latency: each is on one thing, up to and with itself."""

import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.loads import served
from paredown.errors import ConfigError
from paredown.evaluate.load.slo import SLO

NAMES = tuple(one.name for one in fields(SLO))
# By the limit, what two gaps of 0.25 s and 1 s after 2 s are held against.
FOUND = {"ttft_s": 2.0, "tpot_s": 0.625, "itl_s": 1.0, "e2e_s": 3.25}
LIMITS = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, st.integers(1, 999)))


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_is_kept_up_to_itself(name: str) -> None:
    one = served(1.0, 3.0, 3.25, 4.25)
    assert SLO(**{name: FOUND[name]}).is_met(one)
    assert not SLO(**{name: math.nextafter(FOUND[name], 0)}).is_met(one)


@given(LIMITS, st.floats(0, 20), st.lists(st.floats(0, 9), max_size=4))
def test_all_limits_are_kept_together_or_not(
    limits: dict[str, int], ttft_s: float, gaps: list[float]
) -> None:
    times = [1.0 + ttft_s]
    for gap in gaps:
        times.append(times[-1] + gap)
    one = served(1.0, *times)
    alone = [SLO(**{name: float(limit)}).is_met(one) for name, limit in limits.items()]
    assert SLO(**{name: float(limit) for name, limit in limits.items()}).is_met(one) == all(alone)
    assert not SLO(**limits).is_met(served(1.0, *times, failure="broken"))


@given(LIMITS.filter(bool), st.sampled_from(["us", "ms", "s"]))
def test_what_is_written_is_read(limits: dict[str, int], unit: str) -> None:
    """In each unit, and as it says itself."""
    text = ",".join(f"{name.removesuffix('_s')}={value}{unit}" for name, value in limits.items())
    per_s = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit]
    found = SLO.parse(text)
    for name in NAMES:
        limit = getattr(found, name)
        assert limit == (pytest.approx(limits[name] / per_s) if name in limits else None)
    words = str(found).replace(" ms", "ms").split(", ")
    again = SLO.parse(",".join(word.replace(" ", "=") for word in words))
    for name in limits:
        assert getattr(again, name) == pytest.approx(getattr(found, name), rel=1e-5)


def test_limits_of_latency() -> None:
    slo = SLO.parse("ttft=0.5s, tpot=50ms,itl=100ms")
    assert slo == SLO(ttft_s=0.5, tpot_s=0.05, itl_s=0.1)
    assert SLO.parse("tpot=250us").tpot_s == pytest.approx(250e-6)
    assert str(slo) == "ttft 500 ms, tpot 50 ms, itl 100 ms"
    assert slo.is_met(served(0.0, 0.5, 0.55, 0.6))
    assert not slo.is_met(served(0.0, 0.51, 0.55, 0.6))
    assert not slo.is_met(served(0.0, 0.4, 0.5, 0.6))
    assert not slo.is_met(served(0.0, 0.1, 0.105, 0.106, 0.206 + 1e-9))
    assert not SLO(e2e_s=1.0).is_met(served(0.0, 0.5, 1.1))
    assert slo.is_met(served(0.0, 0.5))
    assert not SLO().is_met(served(0.0, failure="the model failed"))


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=", "ttft=5", "ttft=-1s", "p99=1s", "ttft=1s,ttft=2s", "tpot=0ms"]
)
def test_senseless_limits_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        SLO.parse(text)
