"""A sweep of tiny models runs, and what it gives predicts."""

from dataclasses import replace

import pytest

from paredown.cost.model_formats import ModelFormats
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.errors import ConfigError
from paredown.evaluate.speed import engine_steps, step_sweep, swept_model
from paredown.evaluate.speed.random_model import random_linear, random_model
from paredown.evaluate.speed.step_sweep import SweepConfig, never_rising, sweep_machine
from paredown.evaluate.speed.swept_model import SweptLoad
from paredown.formats.table import COSTED_FORMATS, FORMATS
from paredown.kernels.isa import chosen_isa
from paredown.spec.kv import KVSpec
from paredown.spec.machine import Machine

SMALL = SweepConfig().small
TINY = SweepConfig(
    formats=("bf16", "int4-g32"),
    kv_dtypes=("bf16", "int8"),
    num_tokens=(1, 8, 32),
    small=SMALL[:2],
    models=(SMALL[2], SMALL[0]),
    num_attention_models=1,
    num_engine_models=1,
    contexts=(64,),
    num_sequences=(1, 2),
    chunk_tokens=(16,),
    vocab_sizes=(1024, 2048),
    num_rounds=3,
    bandwidth_bytes=(1 << 20, 1 << 22),
)


MACHINE = Machine(
    name="toy",
    isa=chosen_isa(),
    num_cores=1,
    num_threads=1,
    memory_bytes=1 << 30,
    bandwidth_bytes_per_s=1e10,
    int8_ops_per_s=8e11,
    bf16_flops_per_s=4e11,
    fp32_flops_per_s=2e11,
)


def test_a_sweep_gives_a_calibration_that_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bandwidths, which take seconds to measure, are made up: the better of two times counts, and
    none is below that of a larger buffer."""
    told: list[tuple[int, int]] = []
    bandwidths = iter((2e10, 1e10, 1e10, 4e10))
    monkeypatch.setattr(step_sweep, "measure_bandwidth", lambda *_: next(bandwidths))
    monkeypatch.setattr(engine_steps, "BATCHES", ((1, 16), (1, 64), (4, 8)))
    monkeypatch.setattr(swept_model, "_NUM_REPEATS", 8)
    machine = MACHINE
    found = sweep_machine(machine, TINY, lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] == len(told)
    assert found.num_threads == 1
    assert found.bandwidths == ((1 << 20, 4e10), (1 << 22, 4e10))
    assert set(found.linear) == {"bf16", "int4-g32"}
    assert set(found.attention) == {"bf16", "int8"}
    formats = ModelFormats(linear=FORMATS["int4-g32"], output=FORMATS["bf16"], kv_dtype="int8")
    cost = PredictedStep(spec=SMALL[2], formats=formats, fit=found)
    # Which takes longer is no test beside neighbours.
    assert all(0 < cost.step_s(load) < 10 for load in (decode_load(1, 10), prefill_load(32)))
    alone = replace(cost, with_engine=False)
    assert alone.step_s(decode_load(1, 10)) <= cost.step_s(decode_load(1, 10))
    with pytest.raises(ConfigError, match=r"int2.*bf16, int4-g32"):
        replace(cost, formats=ModelFormats(linear=FORMATS["int2"])).step_s(decode_load(1, 1))
    with pytest.raises(ConfigError, match=r"fp32.*bf16, int8"):
        replace(cost, formats=replace(formats, kv_dtype="fp32")).step_s(decode_load(1, 1))


@pytest.mark.parametrize(
    "name",
    [
        "fp32",
        "fp16",
        "fp8",
        "int8",
        "w8a8",
        "int4-g32-asym",
        "int7",
        "w4a8-g32-qoq",
        "w4a8-g64-asym-qoq",
    ],
)
def test_random_models_of_every_kind_run(name: str) -> None:
    load = SweptLoad(2, 5, 1)
    executor = random_model(SMALL[0], COSTED_FORMATS[name], KVSpec(num_pages=load.num_pages), 1)
    logits = executor.step(load.slices())
    assert logits.shape == (2, SMALL[0].vocab_size)
    assert abs(logits).max() < 1e4


def test_the_sweep_has_integer_steps() -> None:
    arrays = random_linear(COSTED_FORMATS["w4a8-g32-qoq"], 8, 64).arrays
    assert arrays["steps"].shape == (8, 2)
    assert arrays["scales"].shape == (8, 1)
    assert "w4a8-g32-qoq" in SweepConfig().formats


def test_a_small_buffer_is_read_as_fast_as_a_large_one() -> None:
    found = never_rising({8: 5.0, 2: 20.0, 32: 4.0, 64: 7.0, 128: 3.0})
    assert found == [(2.0, 20.0), (8.0, 7.0), (32.0, 7.0), (64.0, 7.0), (128.0, 3.0)]
