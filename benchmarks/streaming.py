"""Measures texts of any length on a model that was trained on short ones
(docs/internals/streaming.md).

    python -m benchmarks.streaming [--model FOLDER] [--text FILE] [--tokens 100000] [--sinks 4]
        [--window 1020] [--generated 20000] [--threads 2] [--json OUT]

sinks      attention sinks and a rolling window (StreamingLLM, arXiv 2309.17453): one request
window     a window of as many tokens and no sinks: one request
recompute  for every 128 tokens all of the sinks + window tokens that end with them, from nothing:
           each token is scored after at least sinks + window - 128 others; the reference
dense      everything is seen, at positions that the model was not trained on: one request, of the
           first fifth of the text, since its cost grows with the text

Perplexity is of each tenth of the text. There are no more pages than one request can hold. Memory
is what the process holds (its resident set) over a generation of --generated tokens with sinks,
since scores of a text are kept until its end. Without --text it is the classic books' test text in
$PAREDOWN_DATA.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean

from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.evaluate.texts.text import DATA_TEXT, DATA_VARIABLE, read_text
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.probe import default_num_threads
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.attention_sinks import MAX_STREAMED_TOKENS, AttentionSinks
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE

NUM_PARTS = 10
NUM_DENSE_PARTS = 2
RECOMPUTED_TOKENS = 128
NUM_SAMPLES = 10


@dataclass(kw_only=True)
class Scores:
    """`nll_T`: minus the log-probability of each token but the first, computed on `num_pages`."""

    name: str
    nll_T: list[float]
    num_pages: int
    seconds: float

    def perplexities(self, part_size: int) -> list[float]:
        return [
            math.exp(fmean(self.nll_T[begin : begin + part_size]))
            for begin in range(0, len(self.nll_T), part_size)
        ]

    @property
    def perplexity(self) -> float:
        return math.exp(fmean(self.nll_T))


@dataclass(kw_only=True)
class Growth:
    """Pages held and the process's memory after each number of generated tokens."""

    num_tokens: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    resident_bytes: list[int] = field(default_factory=list)
    seconds: float = 0.0


def without_end(checkpoint: Checkpoint, window: int | None) -> Checkpoint:
    """Returns the checkpoint for any length, with a window of the last tokens or none."""
    endless = replace(checkpoint.spec.with_window(window), max_positions=MAX_STREAMED_TOKENS)
    return replace(checkpoint, spec=endless)


def bounded_engine(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    num_tokens: int,
    num_threads: int,
    sinks: AttentionSinks | None = None,
) -> Engine:
    """Returns an engine with just enough pages for one request of `num_tokens`."""
    config = ScheduleConfig()
    kept = KeptPages.of(Context(spec=checkpoint.spec, sinks=sinks))
    options = RunOptions(
        num_pages=kept.pages_of(num_tokens, config.max_step_tokens),
        threads=ThreadPlan.resolve(num_threads),
        sinks=sinks,
    )
    executor = load_executor(checkpoint, options)
    return Engine(executor, tokenizer, config)


def score_as_one_request(name: str, engine: Engine, token_ids: list[int]) -> Scores:
    params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, prompt_logprobs=0)
    started, nll = time.perf_counter(), []
    engine.submit(token_ids, params)
    while engine.has_work:
        for output in engine.step():
            assert output.error is None, output.error
            nll += [-one.chosen.logprob for one in output.prompt_logprobs]
    seconds = time.perf_counter() - started
    return Scores(name=name, nll_T=nll, num_pages=engine.executor.num_pages, seconds=seconds)


def score_recomputed(executor: LoadedExecutor, token_ids: list[int], size: int) -> Scores:
    """Scores the last tokens of windows of `size` tokens, each computed from nothing (all of the
    first)."""
    started, nll = time.perf_counter(), []
    pages = list(range(-(-size // PAGE_SIZE)))
    end = min(size, len(token_ids) - 1)
    num_wanted = end
    while num_wanted > 0:
        begin = max(0, end - size)
        inputs, targets = token_ids[begin:end], token_ids[end - num_wanted + 1 : end + 1]
        part = SequenceSlice(token_ids=inputs, start=0, pages=pages, num_logits=num_wanted)
        scored = executor.sampler.logprobs(executor.step([part]), targets, 0)
        nll += [-one.chosen.logprob for one in scored]
        num_wanted = min(RECOMPUTED_TOKENS, len(token_ids) - 1 - end)
        end += num_wanted
    seconds = time.perf_counter() - started
    return Scores(name="recompute", nll_T=nll, num_pages=len(pages), seconds=seconds)


def score_all(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    token_ids: list[int],
    sinks: AttentionSinks,
    num_threads: int,
) -> Iterator[Scores]:
    size, num_dense = sinks.num_kept_tokens, NUM_DENSE_PARTS * len(token_ids) // NUM_PARTS
    for name, made, own, ids in (
        ("sinks", checkpoint, sinks, token_ids),
        ("window", without_end(checkpoint, size), None, token_ids),
        ("dense", without_end(checkpoint, None), None, token_ids[: num_dense + 1]),
    ):
        engine = bounded_engine(made, tokenizer, len(ids) + 1, num_threads, own)
        yield score_as_one_request(name, engine, ids)
    executor = load_executor(
        checkpoint,
        RunOptions(num_pages=-(-size // PAGE_SIZE), threads=ThreadPlan.resolve(num_threads)),
    )
    yield score_recomputed(executor, token_ids, size)


def generate(engine: Engine, prompt_token_ids: list[int], num_tokens: int) -> Growth:
    """Generates `num_tokens` tokens after a prompt, at temperature 1."""
    params = SamplingParams(temperature=1, seed=0, max_tokens=num_tokens, ignore_eos=True)
    growth, started = Growth(), time.perf_counter()
    request = engine.submit(prompt_token_ids, params)
    while engine.has_work:
        pages = len(request.pages)
        num_before = request.num_generated_tokens
        engine.step()
        num_now = request.num_generated_tokens
        if num_now > num_before and num_now % max(1, num_tokens // NUM_SAMPLES) == 0:
            growth.num_tokens.append(request.num_generated_tokens)
            growth.pages.append(pages)
            growth.resident_bytes.append(resident_bytes())
    growth.seconds = time.perf_counter() - started
    return growth


def resident_bytes() -> int:
    num_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return num_pages * os.sysconf("SC_PAGE_SIZE")


def print_scores(found: list[Scores], num_tokens: int) -> None:
    print(f"{'perplexity of tokens':>24}" + "".join(f"{one.name:>12}" for one in found))
    part_size = -(-num_tokens // NUM_PARTS)
    columns = [one.perplexities(part_size) for one in found]
    for number, row in enumerate(zip_longest(*columns)):
        end = min(num_tokens, (number + 1) * part_size)
        label = f"{number * part_size:,} to {end:,}"
        cells = ("" if value is None else f"{value:.2f}" for value in row)
        print(f"{label:>24}" + "".join(f"{cell:>12}" for cell in cells))
    print(f"{'all of them':>24}" + "".join(f"{one.perplexity:>12.2f}" for one in found))
    print(f"{'pages there were':>24}" + "".join(f"{one.num_pages:>12}" for one in found))
    rates = [len(one.nll_T) / one.seconds for one in found]
    print(f"{'tokens/s':>24}" + "".join(f"{rate:>12,.0f}" for rate in rates))


def print_growth(growth: Growth) -> None:
    print(f"\n{'generated':>12}{'pages':>8}{'resident, MB':>14}")
    rows = zip(growth.num_tokens, growth.pages, growth.resident_bytes, strict=True)
    for num_tokens, pages, num_bytes in rows:
        print(f"{num_tokens:>12,}{pages:>8}{num_bytes / 1e6:>14.1f}")
    print(f"{growth.num_tokens[-1] / growth.seconds:,.0f} tokens/s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--sinks", type=int, default=AttentionSinks.num_sink_tokens)
    parser.add_argument("--window", type=int, default=AttentionSinks.window)
    parser.add_argument("--generated", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args()
    path = resolve_model(args.model)
    checkpoint, tokenizer = Checkpoint.open(path), Tokenizer.open(path)
    sinks = AttentionSinks(num_sink_tokens=args.sinks, window=args.window)
    if args.text is None and DATA_VARIABLE not in os.environ:
        parser.error(f"name a text with --text, or set {DATA_VARIABLE}")
    text = Path(os.environ[DATA_VARIABLE]) / DATA_TEXT if args.text is None else args.text
    token_ids = tokenizer.encode(read_text(text))[: args.tokens]
    print(f"{path.name}, {len(token_ids):,} tokens of {text.name}; {sinks.arithmetic()}\n")
    found = list(score_all(checkpoint, tokenizer, token_ids, sinks, args.threads))
    print_scores(found, len(token_ids))
    engine = bounded_engine(checkpoint, tokenizer, MAX_STREAMED_TOKENS, args.threads, sinks)
    growth = generate(engine, tokenizer.encode("Once upon a time"), args.generated)
    print_growth(growth)
    if args.json is not None:
        scores = [
            {
                "name": one.name,
                "perplexities": one.perplexities(-(-len(token_ids) // NUM_PARTS)),
                "perplexity": one.perplexity,
                "num_pages": one.num_pages,
                "seconds": one.seconds,
            }
            for one in found
        ]
        document = {"sinks": asdict(sinks), "scores": scores, "growth": asdict(growth)}
        args.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
