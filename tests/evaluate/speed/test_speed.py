"""Rates, their spread, and the utilisations that follow, on an executor of known speed."""

import time

import pytest

from fakes.toy_executor import ToyExecutor, toy_spec
from paredown.evaluate.speed.speed import (
    Trial,
    arithmetic_peak,
    prefill_flops,
    run_rounds,
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
