"""Measures how a long prompt delays running requests.

    python -m benchmarks.chunked_prefill [--model FOLDER] [--threads 2] [--budgets 64 256 512]
                                         [--rounds 25] [--json]

inter-token    milliseconds between the tokens of 8 running requests, alone and while prompts of
               2,000 tokens come in one after the other: median and 99th percentile, for each step
               budget; beside it what one full step takes (asked: 99th percentile <= 2 full steps).
               Five rounds are 45 gaps: of so few the 99th percentile is the largest
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable

from paredown.engine.engine import Engine
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.probe import default_num_threads
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.kv import KVSpec

NUM_RUNNING = 8
LONG_PROMPT = 2000
NUM_PAGES = 2048
ENDLESS = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
Found = dict[str, dict[str, float]]


def percentiles(values: list[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "99th percentile": statistics.quantiles(values, n=100, method="inclusive")[98],
        "max": max(values),
    }


def start(engine: Engine, rng: random.Random, count: int, length: int) -> list[Request]:
    """Returns `count` requests that decode."""
    vocab_size = engine.executor.spec.vocab_size
    requests = [
        engine.submit([rng.randrange(vocab_size) for _ in range(length)], ENDLESS)
        for _ in range(count)
    ]
    while any(one.first_token_s is None for one in requests):
        engine.step()
    return requests


def step_ms(engine: Engine) -> float:
    started = time.perf_counter()
    engine.step()
    return 1e3 * (time.perf_counter() - started)


def inter_token(make: Callable[[int], Engine], budget: int, num_rounds: int) -> Found:
    """Measures inter-token latencies. Every running request gets a token in each step, so a gap is
    the time of a step."""
    engine, rng = make(budget), random.Random(0)
    running = start(engine, rng, NUM_RUNNING, 32)
    length = min(LONG_PROMPT, engine.executor.spec.max_positions - 1)
    alone, beside, full = [], [], list[float]()
    for _ in range(num_rounds):
        alone += [step_ms(engine) for _ in range(30)]
        token_ids = [rng.randrange(engine.executor.spec.vocab_size) for _ in range(length)]
        long = engine.submit(token_ids, SamplingParams(temperature=0, max_tokens=1))
        counts = [one.num_tokens for one in running]
        while long.finish_reason is None:
            left = length - long.num_computed_tokens
            beside.append(step_ms(engine))
            if left >= budget - NUM_RUNNING:
                full.append(beside[-1])
            counts = [one + 1 for one in counts]
            assert counts == [one.num_tokens for one in running], "nobody was held up"
    limit = 2 * statistics.median(full)
    gaps = percentiles(beside)
    return {
        f"budget {budget}: alone, ms": percentiles(alone),
        f"budget {budget}: beside a prompt, ms": gaps,
        f"budget {budget}: a full step, ms": {
            "median": statistics.median(full),
            "99th percentile / 2 full steps": gaps["99th percentile"] / limit,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="default: the packaged model")
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--budgets", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    path = resolve_model(args.model)
    executor = load_executor(
        Checkpoint.open(path), RunOptions(num_pages=1, threads=ThreadPlan.resolve(args.threads))
    )
    tokenizer = Tokenizer.open(path)

    def fresh() -> LoadedExecutor:
        return executor.sharing_weights(KVSpec(num_pages=NUM_PAGES, dtype=executor.kv.dtype))

    def with_budget(budget: int) -> Engine:
        return Engine(fresh(), tokenizer, ScheduleConfig(max_step_tokens=budget))

    found: Found = {}
    for budget in args.budgets:
        found |= inter_token(with_budget, budget, args.rounds)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{path.name}, {executor.arithmetic['isa']}, {args.threads} threads, {args.rounds} rounds"
    )
    for name, row in found.items():
        print(f"  {name:>36}: " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
