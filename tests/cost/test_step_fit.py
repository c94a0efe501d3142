"""Coefficients of a machine: what lies between measurements, and what is never left."""

import math
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.test_fit_steps import COLD, TRUTH, WARM
from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_cost import StepLoad, prefill_load
from paredown.cost.step_fit import (
    EngineRates,
    LinearRates,
    StepFit,
    interpolate,
    overlapped,
)
from paredown.errors import ConfigError
from paredown.spec.weight import SHORT_BF16_ISAS, WeightSpec

SECONDS = st.floats(0, 1e3)
CURVES = st.lists(
    st.tuples(st.integers(1, 10**9), st.floats(1e-9, 1e9)),
    min_size=2,
    max_size=6,
    unique_by=lambda point: point[0],
).map(sorted)


@given(SECONDS, SECONDS)
def test_two_that_overlap_take_the_longer_and_a_fifth_more_at_most(
    compute_s: float, memory_s: float
) -> None:
    found = overlapped(compute_s, memory_s)
    longest = max(compute_s, memory_s)
    assert longest <= found <= longest * 2**0.25 * (1 + 1e-12)
    assert found == overlapped(memory_s, compute_s)
    assert overlapped(2 * compute_s, 2 * memory_s) == pytest.approx(2 * found)


def test_they_are_added_by_their_fourth_powers() -> None:
    assert overlapped(0.0, 0.0) == 0
    assert overlapped(3.0, 0.0) == 3
    assert overlapped(1.0, 1.0) == pytest.approx(2**0.25)
    assert overlapped(2.0, 1.0) == pytest.approx(17**0.25)


@given(CURVES, st.floats(1e-3, 1e12))
def test_between_two_points_is_between_their_values(
    points: list[tuple[int, float]], x: float
) -> None:
    xs, ys = zip(*points, strict=True)
    found = interpolate(xs, ys, x)
    if x <= xs[0]:
        assert found == ys[0]
    elif x >= xs[-1]:
        assert found == ys[-1]
    else:
        above = next(place for place, one in enumerate(xs) if one > x)
        low, high = sorted((ys[above - 1], ys[above]))
        assert low * (1 - 1e-9) <= found <= high * (1 + 1e-9)
    for place in range(len(xs)):
        assert interpolate(xs, ys, xs[place]) == pytest.approx(ys[place])


@given(CURVES)
def test_halfway_is_the_geometric_mean(points: list[tuple[int, float]]) -> None:
    (x1, y1), (x2, y2) = points[:2]
    xs, ys = zip(*points, strict=True)
    assert interpolate(xs, ys, math.sqrt(x1 * x2)) == pytest.approx(math.sqrt(y1 * y2), rel=1e-6)


RATES = LinearRates(
    num_tokens=(1, 16), seconds_per_mac=(4e-12, 1e-12), memory_efficiency=0.5,
    model_bytes=(1e6, 1e8), ratios=((1.0, 2.0), (0.5, 1.0)),
)  # fmt: skip


def test_a_layer_takes_its_products_or_its_bytes_times_what_is_left() -> None:
    """Ratios are taken at its number of tokens first, then at the size of its model."""
    plain = replace(RATES, ratios=(), model_bytes=())
    assert plain.seconds(1e6, 1, 0.0, 1e6) == pytest.approx(4e-6)
    assert plain.seconds(1e6, 16, 0.0, 1e6) == pytest.approx(16e-6)
    assert plain.seconds(1e6, 4, 0.0, 1e6) == pytest.approx(4 * 2e-6)
    assert plain.seconds(0.0, 1, 3.0, 1e6) == pytest.approx(6)
    assert plain.ratio(4, 1e7) == 1
    assert RATES.ratio(1, 1e6) == 1
    assert RATES.ratio(16, 1e6) == 2
    assert RATES.ratio(1, 1e9) == 0.5
    assert RATES.ratio(4, 1e7) == pytest.approx(1.0)
    assert RATES.seconds(1e6, 16, 0.0, 1e6) == pytest.approx(2 * 16e-6)


@pytest.mark.parametrize("name", [one.name for one in fields(EngineRates)])
def test_each_rate_goes_with_what_it_is_of(name: str) -> None:
    load = StepLoad(
        num_tokens=50, num_logits=7, num_requests=5, attention_pairs=0, kv_tokens_read=0,
        num_first_tokens=3,
    )  # fmt: skip
    counts = {
        "step_s": 1,
        "token_s": 50,
        "request_s": 5,
        "arrival_s": 1,
        "prompt_s": 3,
        "logit_s": 7 * 100,
    }
    rates = EngineRates(**{name: 2.0})
    assert rates.seconds(load, 100) == 2 * counts[name]
    later = replace(load, num_first_tokens=0)
    assert rates.seconds(later, 100) == (
        0 if name in ("arrival_s", "prompt_s") else 2 * counts[name]
    )


@given(st.floats(1e3, 1e12), st.floats(1, 10))
def test_a_larger_model_makes_the_engine_no_faster(model_bytes: float, factor: float) -> None:
    near, far = TRUTH.engine_rates(model_bytes), TRUTH.engine_rates(factor * model_bytes)
    for name, rate in asdict(near).items():
        assert rate <= asdict(far)[name] * (1 + 1e-9)
        assert asdict(WARM)[name] * (1 - 1e-9) <= rate <= asdict(COLD)[name] * (1 + 1e-9)


def test_of_three_sizes_the_two_around_a_model_count() -> None:
    hot = EngineRates(step_s=1.0)
    three = replace(TRUTH, engine=((1e6, hot), (1e8, WARM), (1e10, COLD)))
    assert three.engine_rates(1e7).step_s == pytest.approx((1.0 + WARM.step_s) / 2)
    assert three.engine_rates(1e9).step_s == pytest.approx((WARM.step_s + COLD.step_s) / 2)
    assert three.engine_rates(1e8).step_s == pytest.approx(WARM.step_s)
    assert three.engine_rates(1.0) == hot
    assert three.engine_rates(1e12) == COLD


def test_bandwidth_is_that_of_a_buffer_of_the_size() -> None:
    assert TRUTH.bandwidth(1.0) == 2e11
    assert TRUTH.bandwidth(1e8) == pytest.approx(3e10)
    assert TRUTH.bandwidth(1e12) == 2.5e10


def test_what_was_measured_is_known_and_nothing_else() -> None:
    int4, int2 = WeightSpec(dtype="int4", group_size=32), WeightSpec(dtype="int2")
    assert TRUTH.knows(ModelFormats(linear=int4))
    assert not TRUTH.knows(ModelFormats(linear=int2))
    assert not TRUTH.knows(ModelFormats(output=int2))
    assert not TRUTH.knows(ModelFormats(kv_dtype=("bf16", "int8")))
    with pytest.raises(ConfigError, match=r"weights.*int2.*bf16, int4-g32"):
        TRUTH.linear_rates("int2")
    with pytest.raises(ConfigError, match=r"keys and values.*int8.*bf16"):
        TRUTH.attention_rates("int8")
    for isa in ("avx2", "amx", "generic"):
        assert replace(TRUTH, isa=isa).has_short_bf16 == (isa in SHORT_BF16_ISAS)


@pytest.mark.parametrize("name", [*TRUTH.as_json()])
def test_json_without_a_field_is_no_calibration(name: str) -> None:
    document = TRUTH.as_json()
    assert StepFit.from_json(document) == TRUTH
    del document[name]
    with pytest.raises(KeyError):
        StepFit.from_json(document)


def test_the_engine_is_slower_beside_a_larger_model() -> None:
    assert TRUTH.engine_rates(1e3) == WARM
    assert TRUTH.engine_rates(1e12) == COLD
    middle = TRUTH.engine_rates((2e6 * 2e7) ** 0.5)
    assert middle.step_s == pytest.approx((WARM.step_s + COLD.step_s) / 2)
    load = prefill_load(100)
    assert middle.seconds(load, 1000) == pytest.approx(
        5e-5 + 2.5e-5 + 8.5e-6 + 6e-5 + 1.25e-4 + 5.5e-7
    )
