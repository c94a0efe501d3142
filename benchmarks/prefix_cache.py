"""What the prefix cache gains and costs.

    python -m benchmarks.prefix_cache [--model FOLDER] [--threads 2] [--rounds 31] [--json]

warm / cold    time to the first token of a prompt of 2,000 tokens that was asked before, over that
               of one that was not (asked: at most 5 %)
at no hits     time of 32 prompts that have nothing in common, with 32 tokens each to follow, with
               the cache over without it, a step of each in turn (asked: less than 1 % more). What
               the cache adds to each step of such a run is the mean of the middle three fifths of
               its rounds: neighbours on the machine lengthen some steps by more than is asked for.
               The means of whole rounds, with theirs, are beside it.
per page       microseconds to look up and to add a page, without a model

Both ways alternate in one run; figures are medians over the rounds, with the lowest and highest.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator

from paredown.engine.engine import Engine
from paredown.engine.memory.pages import PagePool
from paredown.engine.memory.prefix_cache import PrefixCache
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


def submit(engine: Engine, prompts: list[list[int]]) -> None:
    for token_ids in prompts:
        engine.submit(token_ids, SamplingParams(max_tokens=32, temperature=0, ignore_eos=True))


def steps_in_turn_s(engines: list[Engine]) -> list[list[float]]:
    """What each of them takes for its steps, one of the first after one of the other."""
    seconds: list[list[float]] = [[] for _ in engines]
    order = list(range(len(engines)))
    while any(engine.has_work for engine in engines):
        order.reverse()
        for index in order:
            started = time.perf_counter()
            engines[index].step()
            seconds[index].append(time.perf_counter() - started)
    return seconds


def middle_mean(values: list[float]) -> float:
    """Of all but the lowest and the highest fifth."""
    cut = len(values) // 5
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def added_share(without: list[list[float]], with_cache: list[list[float]]) -> float:
    """What the cache adds to the steps of a run, by round and step, over what they take."""
    added = [
        [more - less for less, more in zip(*runs, strict=True)]
        for runs in zip(without, with_cache, strict=True)
    ]
    total_s = sum(middle_mean(list(step)) for step in zip(*without, strict=True))
    return sum(middle_mean(list(step)) for step in zip(*added, strict=True)) / total_s


def cost_without_hits(pairs: list[dict[bool, Engine]], num_rounds: int) -> Found:
    """Each pair has an engine with the cache and one without, on executors of which the other pair
    has them the other way round: pages that lie elsewhere make a hundredth of a difference."""
    rng, vocab_size = random.Random(1), pairs[0][True].executor.spec.vocab_size
    runs: dict[bool, list[list[float]]] = {False: [], True: []}
    for is_measured in (False, *[True] * num_rounds):
        for pair in pairs:
            prompts = [prompt(rng, vocab_size, 200) for _ in range(NUM_PROMPTS)]
            for engine in pair.values():
                submit(engine, prompts)
            steps = steps_in_turn_s(list(pair.values()))
            if is_measured:
                for name, one in zip(pair, steps, strict=True):
                    runs[name].append(one)
    for pair in pairs:
        assert pair[True].scheduler.cache.stats.num_hits == 0
    # Of a round: a run of each pair.
    totals = {name: [sum(a) + sum(b) for a, b in batched(runs[name])] for name in runs}
    ratios = [more / less for less, more in zip(*totals.values(), strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return {
        "without the cache, ms": summary([1e3 * one / len(pairs) for one in totals[False]]),
        "with / without": {
            "steps": 1 + added_share(runs[False], runs[True]),
            "mean of rounds": statistics.fmean(ratios),
            "standard error": error,
            "median": statistics.median(ratios),
        },
    }


def batched(runs: list[list[float]]) -> Iterator[tuple[list[float], list[float]]]:
    """The first two, the next two and so on."""
    return zip(runs[::2], runs[1::2], strict=True)


def page_us(num_rounds: int) -> Found:
    """Of pages of tokens, as requests make them."""
    num_pages, found = 2048, dict[str, list[float]]()
    rng = random.Random(2)
    contents = [bytes(rng.randrange(256) for _ in range(4 * PAGE_SIZE)) for _ in range(num_pages)]
    for _ in range(num_rounds):
        cache = PrefixCache(num_pages)
        pool = PagePool(num_pages)
        pages = pool.allocate(num_pages) or []
        started = time.perf_counter()
        assert cache.add("", contents, pages)[0] == pages
        pool.keep(pages)
        added = time.perf_counter()
        assert cache.find("", contents, num_pages)[0] == pages
        looked_up = time.perf_counter()
        found.setdefault("add a page, us", []).append((added - started) / num_pages * 1e6)
        found.setdefault("find a page, us", []).append((looked_up - added) / num_pages * 1e6)
    return {name: summary(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="default: the packaged model")
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    path = resolve_model(args.model)
    executor = load_executor(
        Checkpoint.open(path),
        RunOptions(num_pages=NUM_PAGES, threads=ThreadPlan.resolve(args.threads)),
    )
    tokenizer = Tokenizer.open(path)

    def engine(executor: LoadedExecutor, *, with_cache: bool) -> Engine:
        return Engine(executor, tokenizer, ScheduleConfig(prefix_cache=with_cache))

    found = warm_over_cold(engine(executor, with_cache=True), args.rounds)
    # Nothing is read again in a later round, so each pair may write over the other's pages.
    executors = [executor, executor.sharing_weights(executor.kv)]
    pairs = [
        {name: engine(executors[name != swapped], with_cache=name) for name in (False, True)}
        for swapped in (False, True)
    ]
    found |= cost_without_hits(pairs, args.rounds)
    found |= page_us(args.rounds)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{path.name}, {executor.arithmetic['isa']}, {args.threads} threads, {args.rounds} rounds"
    )
    for name, row in found.items():
        print(f"  {name:>28}: " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
