"""Speed of what linear layers round their inputs to: the same weights with inputs of one and of two
int8 codes, in bf16 and in fp32, beside weights in bf16.

    python -m benchmarks.inputs [--models smollm2-135m llama-3.2-1b] [--weights int4-g64] [--json]

Weights are random, of the true shapes, the output layer in the same format: what they hold does not
change how long a step takes. Rounds alternate over all; medians with the least and the most.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from benchmarks.checkpoints.shapes import CONFIGS
from paredown.evaluate.speed.random_model import random_model
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.formats.table import FORMATS
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import default_num_threads, processor_name
from paredown.models.config import spec_from_config
from paredown.spec.kv import PAGE_SIZE, KVSpec
from paredown.spec.weight import ActivationDType, WeightSpec

MODELS = ("smollm2-135m", "llama-3.2-1b")
INPUTS: tuple[ActivationDType, ...] = ("int8_group", "int16_group", "bf16", "fp32")
PROMPT_TOKENS = 512
PROMPT_PAGES = PROMPT_TOKENS // PAGE_SIZE
DECODE_STEPS = 32
BATCH = 8
NUM_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Row:
    """Tokens per second of one task in each round."""

    model: str
    weights: str
    task: str
    rates: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.rates)


def ways(weights: str) -> Mapping[str, WeightSpec]:
    """Returns the weights with each format of inputs, and bf16 weights, by name."""
    plain = FORMATS[weights]
    found = {f"{weights}, inputs {one}": replace(plain, activations=one) for one in INPUTS}
    return {**found, "bf16": WeightSpec(dtype="bf16")}


def prompt_step(step: int) -> list[SequenceSlice]:
    """Returns all tokens of a prompt."""
    tokens = [i % 1000 for i in range(PROMPT_TOKENS)]
    return [SequenceSlice(token_ids=tokens, start=0, pages=list(range(PROMPT_PAGES)), num_logits=1)]


def decode_step(step: int, num_sequences: int) -> list[SequenceSlice]:
    """Returns one token per sequence. They share a prompt's pages, except the last, where each
    writes to its own."""
    start = PROMPT_TOKENS - PAGE_SIZE + step % PAGE_SIZE
    shared = range(PROMPT_PAGES - 1)
    return [
        SequenceSlice(
            token_ids=[step], start=start, pages=[*shared, PROMPT_PAGES + sequence], num_logits=1
        )
        for sequence in range(num_sequences)
    ]


def measure_round(executor: LoadedExecutor) -> dict[str, float]:
    """Returns tokens per second by task."""
    tasks = {
        f"prompt of {PROMPT_TOKENS}": [prompt_step(0)],
        "decode": [decode_step(step, 1) for step in range(DECODE_STEPS)],
        f"decode of {BATCH}": [decode_step(step, BATCH) for step in range(DECODE_STEPS)],
    }
    found = {}
    for task, steps in tasks.items():
        started = time.perf_counter()
        for slices in steps:
            executor.step(slices)
        elapsed = time.perf_counter() - started
        found[task] = sum(len(one.token_ids) for slices in steps for one in slices) / elapsed
    return found


def measure(model: str, weights: str, num_threads: int, num_rounds: int) -> list[Row]:
    """Measures all in turn, after a warm-up round."""
    spec, kv = spec_from_config(CONFIGS[model]), KVSpec(num_pages=PROMPT_PAGES + BATCH)
    executors = {
        name: random_model(spec, one, kv, num_threads) for name, one in ways(weights).items()
    }
    rounds = [
        {name: measure_round(one) for name, one in executors.items()} for _ in range(num_rounds + 1)
    ][1:]
    return [
        Row(model=model, weights=name, task=task, rates=[one[name][task] for one in rounds])
        for name in executors
        for task in rounds[0][name]
    ]


def print_rows(rows: Sequence[Row]) -> None:
    base = {(row.model, row.task): row.median for row in rows if row.weights.endswith("int8_group")}
    print(f"{processor_name()}, {chosen_isa()}")
    print("| model | weights | task | tokens/s | of int8 inputs |")
    print("| --- | --- | --- | ---: | ---: |")
    for row in sorted(rows, key=lambda row: (row.model, row.task)):
        spread = f"{row.median:,.1f} ({min(row.rates):,.1f}..{max(row.rates):,.1f})"
        share = row.median / base[row.model, row.task]
        print(f"| {row.model} | {row.weights} | {row.task} | {spread} | {share:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(CONFIGS), default=list(MODELS))
    parser.add_argument("--weights", nargs="+", choices=list(FORMATS), default=["int4-g64"])
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [
        row
        for model in args.models
        for weights in args.weights
        for row in measure(model, weights, args.threads, args.rounds)
    ]
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print_rows(rows)


if __name__ == "__main__":
    main()
