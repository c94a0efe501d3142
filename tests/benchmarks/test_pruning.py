"""Speed of cut shapes, and the cost of methods beside GPTQ's."""

import pytest

from benchmarks.checkpoints.shapes import CONFIGS
from benchmarks.pruning.cost import compared
from benchmarks.pruning.speed import SpeedRow, cut_specs, measure_speed, shorter
from paredown.models.config import spec_from_config

LLAMA = spec_from_config(dict(CONFIGS["llama-3.2-1b"]))
TINY = spec_from_config(dict(CONFIGS["tiny-llama"]))


def test_shapes_of_cuts() -> None:
    cuts = cut_specs(shorter(LLAMA, 8))
    assert list(cuts) == ["prune-ffn-25", "prune-layers-2"]
    neurons, layers = cuts.values()
    assert (neurons.num_layers, neurons.layers[0].mlp.size) == (8, 6144)
    assert (layers.num_layers, layers.layers[0].mlp.size) == (6, 8192)


def test_a_share_is_the_gain_over_what_was_removed() -> None:
    row = SpeedRow(
        name="x",
        weights="int8",
        flops=1.25,
        num_bytes=1.6,
        prefill=[1.0, 1.25, 9.0],
        decode=[0.8, 0.8, 0.8],
    ).as_json()
    assert row["prefill"] == {"says": 1.25, "measured": 1.25, "share": 1.0}
    assert row["decode"]["share"] == pytest.approx(0.5)


def test_all_cuts_are_timed_in_all_formats() -> None:
    counts: list[tuple[int, int]] = []
    rows = measure_speed(TINY, 1, 1, lambda done, total: counts.append((done, total)))
    assert [(row["name"], row["weights"]) for row in rows] == [
        (name, weights) for weights in ("bf16", "int8") for name in cut_specs(TINY)
    ]
    for row in rows:
        assert row["prefill"]["says"] > 1
        assert row["decode"]["says"] > 1
        assert row["prefill"]["measured"] > 0
    assert counts == [(1, 2), (2, 2)] * 2


def test_costs_are_medians_over_those_of_the_first() -> None:
    def run(seconds: float, peak: float) -> dict[str, float]:
        return {"seconds": seconds, "processor_s": 2 * seconds, "peak_bytes": peak}

    found = compared(
        {"gptq": [run(1, 50), run(2, 100), run(9, 100)], "other": [run(3, 50), run(3, 50)]}
    )
    assert found["gptq"]["seconds"] == 2
    assert found["gptq"]["of_first"]["peak_bytes"] == 1
    assert found["other"]["of_first"] == {"seconds": 1.5, "processor_s": 1.5, "peak_bytes": 0.5}
