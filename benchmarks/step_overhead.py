"""Microseconds of Python in a step of decoding requests: all of `Engine.step` but its two calls
into the core, one that computes the logits and one that draws from them.

    python -m benchmarks.step_overhead [--model FOLDER] [--batches 1 8 32 64] [--contexts 64 1024]
                                       [--rounds 12] [--threads N] [--native] [--profile] [--json]

Without --native the core is a stub that answers at once with the tokens of a text, so nothing but
Python is timed, its objects in the caches. With it the model runs, and the seconds of its two calls
are taken off: the caches are the model's then, and the interpreter starts cold in each step.
A context is the number of tokens of each request when its batch begins to be timed. A round is 50
steps, in processor time of the engine's thread; the least of the rounds is what the code takes with
its core to itself, the median what it took beside whatever else ran. --profile prints where the
last batch of the last context spends it. `scheduler` is the scheduler's part, the least again.
"""

import argparse
import cProfile
import itertools
import json
import pstats
import statistics
import time
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from paredown.engine.detokenize import prepare_texts
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.native.pack_weights import pack_weights
from paredown.kernels.native_model import NativeModel
from paredown.kernels.native_sampler import SamplingState
from paredown.kernels.probe import default_num_threads, processor_name
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.context import Context
from paredown.spec.kv import PAGE_SIZE, KVSpec
from paredown.spec.model import ModelSpec

STEPS_PER_ROUND = 50
ENDLESS = SamplingParams(max_tokens=None, ignore_eos=True)
TEXT = (
    "It was late in the evening when the ship, which had been at sea for 12 days, came home. "
    "“Nobody has seen him,” said the old man; “not since Tuesday — and I've asked.” "
)
Rows = tuple[list[int], dict[int, tuple[int, tuple[float, list[tuple[int, float]]] | None]]]


class StubSampler:
    """Gives the rows of a step tokens of a text, as a sampler of the core would, at once."""

    def __init__(self, token_ids: list[int]) -> None:
        self._token_ids = token_ids
        self._steps: dict[tuple[int, int], list[int]] = {}
        self._place = 0

    def sample(self, logits: npt.NDArray[np.float32], states: list[SamplingState]) -> Rows:
        self._place = (self._place + 1) % len(self._token_ids)
        key = (self._place, len(states))
        if key not in self._steps:
            places = [(self._place + 7 * i) % len(self._token_ids) for i in range(len(states))]
            self._steps[key] = [self._token_ids[place] for place in places]
        return self._steps[key], {}


class StubModel:
    """Answers at once, with logits that nobody reads."""

    def __init__(self, spec: ModelSpec, token_ids: list[int]) -> None:
        self.spec = spec
        self.context = Context(spec=spec)
        self.sampler = StubSampler(token_ids)
        self.seconds = 0.0
        self._logits = np.zeros((4096, spec.vocab_size), np.float32)

    def step(self, *arrays: Any) -> npt.NDArray[np.float32]:
        return self._logits[: sum(arrays[3])]


class TimedModel:
    """The model itself, and the seconds spent in its calls."""

    def __init__(self, model: NativeModel) -> None:
        self.spec = model.spec
        self.context = model.context
        self.sampler = self
        self.seconds = 0.0
        self._model = model
        self._sampler = model.sampler

    def step(self, *arrays: Any) -> npt.NDArray[np.float32]:
        start_s = time.thread_time()
        logits = self._model.step(*arrays)
        self.seconds += time.thread_time() - start_s
        return logits

    def sample(self, logits: npt.NDArray[np.float32], states: list[SamplingState]) -> Rows:
        start_s = time.thread_time()
        rows = self._sampler.sample(logits, states)
        self.seconds += time.thread_time() - start_s
        return rows


def start(
    model: StubModel | TimedModel, kv: KVSpec, tokenizer: Tokenizer, batch: int, context: int
) -> Engine:
    """An engine whose `batch` requests decode."""
    executor = NativeExecutor(cast(NativeModel, model), kv)
    prepare_texts(tokenizer, executor.spec.vocab_size)
    engine = Engine(executor, tokenizer, ScheduleConfig(max_running=batch, prefix_cache=True))
    token_ids = tokenizer.encode(TEXT)
    for i in range(batch):
        prompt = [*tokenizer.encode(str(i)), *itertools.islice(itertools.cycle(token_ids), context)]
        engine.submit(prompt[:context], ENDLESS)
    while (
        any(one.num_generated_tokens < 2 for one in engine.scheduler.running)
        or len(engine.scheduler.running) < batch
    ):
        engine.step()
    return engine


def time_steps(engine: Engine, model: StubModel | TimedModel, num_rounds: int) -> dict[str, float]:
    found = []
    for _ in range(num_rounds):
        model.seconds, start_s = 0.0, time.thread_time()
        for _ in range(STEPS_PER_ROUND):
            engine.step()
        seconds = time.thread_time() - start_s - model.seconds
        found.append(seconds / STEPS_PER_ROUND * 1e6)
    return {"least": min(found), "median": statistics.median(found), "most": max(found)}


def time_schedule(engine: Engine, num_rounds: int) -> float:
    """The scheduler's part of a step: planning it, and noting what it has computed."""
    found = []
    for _ in range(num_rounds):
        start_s = time.thread_time()
        for _ in range(STEPS_PER_ROUND):
            for request, _ in engine.scheduler.schedule().chunks:
                engine.scheduler.advance(request, 0)
        found.append((time.thread_time() - start_s) / STEPS_PER_ROUND * 1e6)
    return min(found)


def profile(engine: Engine) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(10 * STEPS_PER_ROUND):
        engine.step()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", help="default: the packaged model")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--native", action="store_true", help="with the model between")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    path = resolve_model(args.model)
    checkpoint, tokenizer = Checkpoint.open(path), Tokenizer.open(path)
    num_steps = (args.rounds + 12 * args.profile) * STEPS_PER_ROUND
    num_tokens = max(args.contexts) + num_steps
    if num_tokens > checkpoint.spec.max_positions:
        parser.error(f"{num_tokens} tokens are more than the context; fewer --rounds or --contexts")
    kv = KVSpec(num_pages=max(args.batches) * (num_tokens // PAGE_SIZE + 2))
    model: StubModel | TimedModel
    if args.native:
        native = NativeModel(Context(spec=checkpoint.spec), kv, ThreadPlan.resolve(args.threads))
        pack_weights(checkpoint, native, None)
        model = TimedModel(native)
    else:
        model = StubModel(checkpoint.spec, tokenizer.encode(TEXT))
    found = []
    for batch, context in itertools.product(args.batches, args.contexts):
        engine = start(model, kv, tokenizer, batch, context)
        row = {"batch": batch, "context": context, **time_steps(engine, model, args.rounds)}
        found.append(row | {"scheduler": time_schedule(engine, args.rounds)})
        if args.profile and (batch, context) == (args.batches[-1], args.contexts[-1]):
            profile(engine)
    if args.json:
        print(json.dumps(found, indent=1))
        return
    core = f"{args.threads} threads of the model" if args.native else "no model"
    print(f"{processor_name()}, {core}; microseconds of Python in a step")
    print("".join(f"{name:>10}" for name in found[0]))
    for row in found:
        print("".join(f"{value:10.6g}" for value in row.values()))


if __name__ == "__main__":
    main()
