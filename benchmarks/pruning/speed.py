"""Prefill and decode speed of cut models, beside what the removed share of FLOPs and bytes says.

All models have random weights of their shapes, since speed does not depend on values. Rounds
alternate. `says` is how many times fewer FLOPs a prompt takes, or fewer bytes a decode step reads;
`share` is the measured gain over that: 1 where all that was removed is time saved.
"""

import statistics
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.layers import CutLayers
from paredown.evaluate.speed.random_model import random_model
from paredown.evaluate.speed.speed import (
    PREFILL_TOKENS,
    Trial,
    prefill_flops,
    run_rounds,
    speed_pages,
)
from paredown.progress import OnCount
from paredown.spec.kv import KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

WEIGHTS = (WeightSpec(dtype="bf16"), WeightSpec(dtype="int8"))


@dataclass(frozen=True, kw_only=True)
class SpeedRow:
    """A cut model in one format beside the whole one. `flops` and `num_bytes` are ratios, whole
    over cut; `prefill` and `decode` ratios of speeds in the same round, cut over whole."""

    name: str
    weights: str
    flops: float
    num_bytes: float
    prefill: list[float]
    decode: list[float]

    def as_json(self) -> dict[str, Any]:
        prefill, decode = statistics.median(self.prefill), statistics.median(self.decode)
        return {
            "name": self.name,
            "weights": self.weights,
            "prefill": {"says": self.flops, "measured": prefill, "share": prefill / self.flops},
            "decode": {
                "says": self.num_bytes,
                "measured": decode,
                "share": decode / self.num_bytes,
            },
        }


def cut_specs(spec: ModelSpec) -> dict[str, ModelSpec]:
    """Returns the shapes that the cuts of a quarter leave: of the neurons, and about of the
    layers."""
    num = max(1, spec.num_layers // 4)
    return {
        "prune-ffn-25": CutNeurons(share=0.25).check(spec),
        f"prune-layers-{num}": CutLayers(num=num).check(spec),
    }


def shorter(spec: ModelSpec, num_layers: int) -> ModelSpec:
    """Returns the model with its first layers only."""
    return replace(spec, layers=spec.layers[:num_layers])


def measure_speed(
    spec: ModelSpec, num_threads: int, num_rounds: int, on_progress: OnCount
) -> list[dict[str, Any]]:
    rows = []
    for weights in WEIGHTS:
        rows += _measure(spec, weights, (num_threads, num_rounds), on_progress)
    return [row.as_json() for row in rows]


def show_speed(found: list[dict[str, Any]]) -> None:
    headings = ("says", "measured", "share")
    table = Table(
        Column("cut", overflow="fold"),
        "weights",
        *(f"{what} {one}" for what in ("prefill", "decode") for one in headings),
    )
    for row in found:
        figures = [f"{row[what][one]:.2f}" for what in ("prefill", "decode") for one in headings]
        table.add_row(row["name"], row["weights"], *figures)
    Console().print(table)


def _measure(
    spec: ModelSpec, weights: WeightSpec, how: tuple[int, int], on_progress: OnCount
) -> list[SpeedRow]:
    num_threads, num_rounds = how
    kv = KVSpec(num_pages=speed_pages(spec))

    def trial(one: ModelSpec) -> Trial:
        return Trial(executor=random_model(one, weights, kv, num_threads), weights=weights)

    specs = cut_specs(spec)
    whole, cuts = trial(spec), {name: trial(one) for name, one in specs.items()}
    run_rounds([whole, *cuts.values()], num_rounds, on_progress)
    num_tokens = min(PREFILL_TOKENS, spec.max_positions)
    return [
        SpeedRow(
            name=name,
            weights=weights.name,
            flops=prefill_flops(spec, num_tokens) / prefill_flops(specs[name], num_tokens),
            num_bytes=whole.step_bytes / own.step_bytes,
            prefill=_ratios(own.prefill, whole.prefill),
            decode=_ratios(own.decode, whole.decode),
        )
        for name, own in cuts.items()
    ]


def _ratios(cut: list[float], whole: list[float]) -> list[float]:
    return [one / other for one, other in zip(cut, whole, strict=True)]
