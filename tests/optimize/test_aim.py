"""Which mix a search makes next, by the candidates that were measured."""

from dataclasses import replace

import pytest

from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.aim import Aim, Mixes
from paredown.optimize.bounds import Bounds
from paredown.optimize.candidates import Candidates
from paredown.optimize.ladder import Mix

ORIGINAL = Measurement(
    name="original",
    linear_dtype="bf16",
    bits_per_weight=16.0,
    file_bytes=1000,
    perplexity=10.0,
    decode_tokens_per_s=100.0,
)


def measured(name: str, loss: float, kl: float, **changes: float) -> Measurement:
    made = replace(ORIGINAL, name=name, perplexity=10 * (1 + loss), kl_divergence=kl)
    return replace(made, file_bytes=500, **changes)


def mix(loss: float, read_bytes: float, cost: float | None = None) -> Mix:
    cost = read_bytes if cost is None else cost
    return Mix(loss=loss, read_bytes=read_bytes, cost=cost, rungs=())


def aim(bounds: Bounds, candidates: list[Measurement], made: dict[str, Mix] | None = None) -> Aim:
    found = Candidates(measurements=candidates, reference=ORIGINAL)
    return Aim(bounds=bounds, found=found, made=made or {}, table_bytes=100.0)


def test_the_allowed_loss_is_reached_by_the_ratio_of_the_nearest_candidates() -> None:
    """2 % may be lost; of the candidates near it a part in 100 is 0.5 nats in 100."""
    near = [measured("a", 0.03, 0.015), measured("b", 0.01, 0.005), measured("c", 0.5, 5.0)]
    mixes = [mix(0.03, 300), mix(0.012, 400), mix(0.001, 500)]
    chosen = aim(Bounds(max_quality_loss=0.02), near).mix(Mixes(by_cost=mixes, by_bytes=mixes), 0.5)
    assert chosen.read_bytes == 400  # 0.01 nats are allowed, and the method loses half the sum


def test_of_two_that_are_about_as_fast_the_smaller_is_made() -> None:
    candidates = [measured("a", 0.01, 0.01)]
    fast, small = mix(0.005, 500, 500), mix(0.005, 400, 510)
    bounds = Bounds(max_kl=0.01)
    assert aim(bounds, candidates).mix(Mixes(by_cost=[fast], by_bytes=[small]), 1.0) is small
    slow = mix(0.005, 400, 600)
    assert aim(bounds, candidates).mix(Mixes(by_cost=[fast], by_bytes=[slow]), 1.0) is fast


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [(Bounds(max_mb=0.00025), "read_bytes"), (Bounds(min_decode=200.0), "cost")],
)
def test_sizes_are_bounded_in_bytes_and_speeds_in_cost(bounds: Bounds, expected: str) -> None:
    """The candidate is twice as large, or half as fast, as allowed."""
    candidates = [measured("a", 0.01, 0.01, decode_tokens_per_s=100.0)]
    by_cost = [mix(0.5, 0, 180), mix(0.3, 0, 190)]
    by_bytes = [mix(0.4, 180, 0), mix(0.2, 190, 0)]
    chosen = aim(bounds, candidates).mix(Mixes(by_cost=by_cost, by_bytes=by_bytes), 1.0)
    assert chosen in (by_bytes if expected == "read_bytes" else by_cost)
    assert chosen.along(expected) == 180


def test_a_mix_is_worth_making_where_it_beats_those_within_the_bounds() -> None:
    good, bad = measured("good", 0.009, 0.009), measured("bad", 0.02, 0.02)
    made = {"good": mix(0.01, 400, 440), "bad": mix(0.02, 300, 300)}
    one = aim(Bounds(max_quality_loss=0.01), [good, bad], made)
    assert not one.is_new(mix(0.01, 399, 439))
    assert one.is_new(mix(0.01, 380, 500))
    assert one.is_new(mix(0.01, 500, 400))
    assert aim(Bounds(max_quality_loss=0.001), [good, bad], made).is_new(mix(0.01, 400, 440))
