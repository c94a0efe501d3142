"""Rates, their spread, and the utilisations that follow, on an executor of known speed."""

import itertools
import time

import pytest

from fakes.toy_executor import ToyExecutor, toy_spec
from fakes.virtual_clock import VirtualClock
from paredown.evaluate.speed import speed as speed_module
from paredown.evaluate.speed.speed import (
    Trial,
    arithmetic_peak,
    prefill_flops,
    run_rounds,
    slice_flops,
    speed_pages,
)
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.machine import Machine
from paredown.spec.weight import WeightSpec

MACHINE = Machine(
    name="toy",
    isa="avx512_bf16",
    num_cores=1,
    num_threads=1,
    memory_bytes=1 << 30,
    bandwidth_bytes_per_s=1e9,
    int8_ops_per_s=8e9,
    bf16_flops_per_s=4e9,
    fp32_flops_per_s=2e9,
)


class TimedExecutor(ToyExecutor):
    weight_bytes = 1_000_000
    kv_token_bytes = 100
    threads = ThreadPlan(prefill=1, decode=1)
    isa = "generic"

    def step(self, slices):
        time.sleep(0.001 * len(slices[0].token_ids) ** 0.5)
        return super().step(slices)


def test_rates_follow_from_the_time_a_step_takes() -> None:
    trial = Trial(executor=TimedExecutor(num_pages=16), weights=WeightSpec(dtype="int8"))
    seen = []
    run_rounds([trial], 3, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert len(trial.decode) == len(trial.prefill) == 3
    speed = trial.speed(MACHINE)
    # The sleep bounds them from above; how much slower a busy machine is, nobody knows.
    assert 0 < speed.decode_tokens_per_s < 1000
    assert 0 < speed.prefill_tokens_per_s < 16000
    assert speed.decode_spread >= 0
    assert speed.mbu > 0
    flops = prefill_flops(toy_spec(), 256) / 256
    assert speed.mfu == pytest.approx(speed.prefill_tokens_per_s * flops / 8e9)


def test_flops_count_every_product_twice() -> None:
    spec = toy_spec()
    linear = sum(rows * columns for rows, columns in spec.linear_shapes(0).values())
    pairs = 1 + 2 + 3
    expected = 2 * 3 * linear + 2 * 512 * 8 + 4 * 8 * pairs
    assert prefill_flops(spec, 3) == expected


def test_operations_of_chunks_are_those_of_the_whole() -> None:
    spec = toy_spec()
    ends = [0, 1, 7, 30, 31]
    chunks = sum(
        slice_flops(spec, start=a, num_tokens=b - a, num_logits=b == 31)
        for a, b in itertools.pairwise(ends)
    )
    assert chunks == prefill_flops(spec, 31)


def test_the_peak_is_that_of_the_arithmetic_in_use() -> None:
    peaks = {name: arithmetic_peak(MACHINE, WeightSpec(dtype=name)) for name in ("int4", "int8")}
    assert peaks == {"int4": 8e9, "int8": 8e9}
    assert arithmetic_peak(MACHINE, WeightSpec(dtype="bf16")) == 4e9
    assert arithmetic_peak(MACHINE, WeightSpec(dtype="fp16")) == 2e9


def test_short_contexts_are_measured_too() -> None:
    spec = toy_spec(max_positions=32)
    trial = Trial(
        executor=TimedExecutor(spec=spec, num_pages=speed_pages(spec)),
        weights=WeightSpec(dtype="fp32"),
    )
    run_rounds([trial], 2)
    assert trial.speed(MACHINE).decode_tokens_per_s > 0


class SteadyExecutor(TimedExecutor):
    """A step takes 10 ms and a token of it 1 ms more, in time that only it makes pass."""

    def step(self, slices):
        time.sleep(0.01 + 0.001 * len(slices[0].token_ids))
        return ToyExecutor.step(self, slices)


@pytest.mark.parametrize("bandwidth", [1e8, 2e9])
def test_shares_of_the_limits_are_what_was_read_and_computed_in_a_second(
    bandwidth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measure(num_threads: int, num_bytes: int) -> float:
        asked.append(num_bytes)
        return bandwidth / len(asked)

    monkeypatch.setattr(speed_module, "measure_bandwidth", measure)
    VirtualClock(monkeypatch)
    trial = Trial(executor=SteadyExecutor(num_pages=16), weights=WeightSpec(dtype="int8"))
    run_rounds([trial], 5)
    found = trial.speed(MACHINE)
    assert found.decode_tokens_per_s == pytest.approx(1 / 0.011)
    assert found.prefill_tokens_per_s == pytest.approx(256 / 0.266)
    assert (found.decode_spread, found.prefill_spread) == pytest.approx((0, 0), abs=1e-9)
    # 128 of a prompt and half of 64 answered ones, of 100 bytes each.
    assert set(asked) == {1_000_000 + 160 * 100}
    assert len(asked) == 1 + 3, "of the round that does not count, and of the first three"
    assert found.mbu == pytest.approx((1 / 0.011) * 1_016_000 / (bandwidth / 2))
    assert found.mfu == pytest.approx(prefill_flops(toy_spec(), 256) / 0.266 / 8e9)


def test_a_slow_model_decodes_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least two tokens, and at most 64 of a fast one; each after the one before it."""
    monkeypatch.setattr(speed_module, "measure_bandwidth", lambda *_: 1.0)
    VirtualClock(monkeypatch)
    for delay_s, num_decoded in ((0.0, 64), (0.3, 4), (5.0, 2)):
        executor = SlowExecutor(delay_s)
        Trial(executor=executor, weights=WeightSpec(dtype="int8")).run_round()
        assert executor.starts == [0, *range(128, 128 + num_decoded)]


class SlowExecutor(TimedExecutor):
    def __init__(self, delay_s: float) -> None:
        super().__init__(num_pages=16)
        self.delay_s, self.starts = delay_s, []

    def step(self, slices):
        self.starts.append(slices[0].start)
        time.sleep(0.001)
        return ToyExecutor.step(self, slices)


@pytest.mark.parametrize(("max_positions", "pages"), [(15, 1), (16, 1), (17, 2), (4096, 16)])
def test_pages_hold_the_longer_of_both_measurements(max_positions: int, pages: int) -> None:
    assert speed_pages(toy_spec(max_positions=max_positions)) == pages
