"""What the prefix cache gains and costs.

    python -m benchmarks.prefix_cache [--model FOLDER] [--threads 2] [--rounds 9] [--json]

warm / cold    time to the first token of a prompt of 2,000 tokens that was asked before, over that
               of one that was not (asked: at most 5 %)
at no hits     time of 32 prompts that have nothing in common, with 32 tokens each to follow, with
               the cache over without it (asked: less than 1 % more)
per page       microseconds to look up and to add a page, without a model

Both ways alternate in one run; figures are medians over the rounds, with the lowest and highest.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable

from paredown.engine.engine import Engine
from paredown.engine.memory.pages import PagePool
from paredown.engine.memory.prefix_cache import PrefixCache
from paredown.engine.native.native_executor import load_executor
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.scheduler import ScheduleConfig
from paredown.kernels.probe import default_num_threads
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.tokenizer import Tokenizer
from paredown.spec.kv import PAGE_SIZE

LONG_PROMPT = 2000
NUM_PROMPTS = 32
NUM_PAGES = 1024
Found = dict[str, dict[str, float]]


def summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def prompt(rng: random.Random, vocab_size: int, length: int) -> list[int]:
    return [rng.randrange(vocab_size) for _ in range(length)]


def first_token_s(engine: Engine, token_ids: list[int]) -> float:
    request = engine.submit(token_ids, SamplingParams(max_tokens=1, temperature=0))
    started = time.perf_counter()
    while request.first_token_s is None:
        engine.step()
    return time.perf_counter() - started


def warm_over_cold(engine: Engine, num_rounds: int) -> Found:
    rng, vocab_size = random.Random(0), engine.executor.spec.vocab_size
    length = min(LONG_PROMPT, engine.executor.spec.max_positions - 1)
    cold, warm = [], []
    for _ in range(num_rounds + 1):
        token_ids = prompt(rng, vocab_size, length)
        cold.append(first_token_s(engine, token_ids))
        warm.append(first_token_s(engine, token_ids))
    ratios = [w / c for c, w in zip(cold[1:], warm[1:], strict=True)]
    return {
        f"cold, ms, {length} tokens": summary([1e3 * one for one in cold[1:]]),
        "warm, ms": summary([1e3 * one for one in warm[1:]]),
        "warm / cold": summary(ratios),
    }


def run_s(engine: Engine, prompts: list[list[int]]) -> float:
    for token_ids in prompts:
        engine.submit(token_ids, SamplingParams(max_tokens=32, temperature=0, ignore_eos=True))
    started = time.perf_counter()
    while engine.has_work:
        engine.step()
    return time.perf_counter() - started


def cost_without_hits(make: Callable[[bool], Engine], num_rounds: int) -> Found:
    """`make` gives engines with and without the cache."""
    rng, engines = random.Random(1), {name: make(name) for name in (False, True)}
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number in range(num_rounds + 1):
        vocab_size = engines[True].executor.spec.vocab_size
        prompts = [prompt(rng, vocab_size, 200) for _ in range(NUM_PROMPTS)]
        for with_cache in (False, True) if number % 2 else (True, False):
            seconds[with_cache].append(run_s(engines[with_cache], prompts))
    assert engines[True].scheduler.cache.stats.num_hits == 0
    ratios = [w / n for n, w in zip(seconds[False][1:], seconds[True][1:], strict=True)]
    return {
        "without the cache, ms": summary([1e3 * one for one in seconds[False][1:]]),
        "with / without": summary(ratios)
        | {"of the fastest": min(seconds[True]) / min(seconds[False])},
    }


def page_us(num_rounds: int) -> Found:
    """Of pages of tokens, as requests make them."""
    num_pages, found = 2048, dict[str, list[float]]()
    rng = random.Random(2)
    contents = [bytes(rng.randrange(256) for _ in range(4 * PAGE_SIZE)) for _ in range(num_pages)]
    for _ in range(num_rounds):
        cache = PrefixCache(num_pages)
        pool = PagePool(num_pages, on_evict=cache.forget)
        pages = pool.allocate(num_pages) or []
        started = time.perf_counter()
        parent: object = ""
        for page, content in zip(pages, contents, strict=True):
            cache.add(parent, content, page)
            pool.keep(page)
            parent = cache.node(page)
        added = time.perf_counter()
        assert cache.find("", contents.__getitem__, num_pages) == pages
        looked_up = time.perf_counter()
        found.setdefault("add a page, us", []).append((added - started) / num_pages * 1e6)
        found.setdefault("find a page, us", []).append((looked_up - added) / num_pages * 1e6)
    return {name: summary(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="default: the packaged model")
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    path = resolve_model(args.model)
    executor = load_executor(Checkpoint.open(path), num_pages=NUM_PAGES, num_threads=args.threads)
    tokenizer = Tokenizer.open(path)

    def make(with_cache: bool) -> Engine:
        # On the same pages: others differ by a hundredth, by where they lie in memory. The engine
        # without the cache writes over what the other keeps, of which nothing is read again.
        return Engine(executor, tokenizer, ScheduleConfig(prefix_cache=with_cache))

    found = warm_over_cold(make(True), args.rounds)
    found |= cost_without_hits(make, args.rounds)
    found |= page_us(args.rounds)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{path.name}, {executor.isa}, {args.threads} threads, {args.rounds} rounds")
    for name, row in found.items():
        print(f"  {name:>28}: " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
