"""Measures the gain of speculation, and the roofline arithmetic that explains it.

    python -m benchmarks.speculation --data $PAREDOWN_DATA [--only draft lookup batch replay]
        [--fixed] [--rounds 9] [--threads N] [--root runs/bench/models] [--json OUT]

draft    the built-in model with its packaged draft model (rounded to int8 as it is loaded) and
         with the same in int4; batch 1; greedy and sampled
lookup   n-gram, reference text and suffix cache: on what the built-in model writes, and on text
         that is copied with a word changed here and there. The built-in model does not copy, so
         there its logits are made to go on as the copy does (benchmarks/replay.py); its work is
         all done.
batch    16 requests together: what must not become slower
replay   random weights of 1B shape in int4 with a draft model of 80 M in int8: every step in full,
         each draft token accepted with the probability that the built-in pair was measured to have

Each row runs the same requests with and without speculation in turn, in one process, 20 ms of one
after 20 ms of the other, on executors that share weights and change places. `gain` is the
median over rounds of the ratio, `spread` its quartile distance over the median. `fixed` is the best
gain of the same with one K for all, 1 to 4, in runs of their own (--fixed). The ceiling is

    max over K of  (1 + a + ... + a^K) / ((T(K + 1) + D(K)) / T(1))

with the share `a` of tested draft tokens that were accepted, a step of n tokens T(n) and K draft
tokens of a draft model after a step of the target, D(K), as measured here: without what Python
takes no fixed K is faster where draft tokens are accepted independently.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.checkpoints.cache import Variant, paredown_folder
from benchmarks.replay import ReplayProposer, scripted
from benchmarks.speculation_costs import MAX_DRAFT, PASSAGE_TOKENS, Costs, costs_of
from paredown.compress.compress import compress
from paredown.engine.prompt import encode_prompt
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.speculate.draft_model import DraftModelProposer
from paredown.engine.speculate.make_speculator import make_speculator
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.evaluate.speed.speculation import RequestRounds, SpeculationSpeed, compare_speculation
from paredown.executors.load import load_executor
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.probe import processor_name
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

SECTIONS = ("draft", "lookup", "batch", "replay")
NUM_PAGES = 512
MAX_TOKENS = 200
PROMPT_TOKENS = 32
# A copy with one of this many tokens changed, as in a corrected text.
CHANGE_EVERY = 25
BATCH = 16
DRAFT_RECIPE = "int4-g32-head-int4-g32"
FIXED = (1, 2, 3, 4)
REPLAY_TOKENS = 48
# The acceptance of the packaged draft model's greedy tokens on such text, if not measured.
DEFAULT_RATE = 0.7
TARGET_1B = Variant(model="llama-3.2-1b", format="int4-g32", output_format="int8")
DRAFT_1B = Variant(model="llama-3.2-draft-80m", format="int8", output_format="int8")
GREEDY = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.8, top_k=40, seed=1, max_tokens=MAX_TOKENS, ignore_eos=True)
DRAWS = {"greedy": GREEDY, "temperature 0.8": SAMPLED}


@dataclass(frozen=True, kw_only=True)
class Row:
    section: str
    speed: SpeculationSpeed
    ceiling: float | None = None
    # The best gain of one K for all requests, and that K.
    fixed: tuple[float, int] | None = None


class Bench:
    """The built-in model twice over the same weights, and pieces of a text nobody trained on."""

    def __init__(
        self, data: Path, *, num_rounds: int, num_threads: int | None, with_fixed: bool = False
    ) -> None:
        self.num_rounds = num_rounds
        self.with_fixed = with_fixed
        self.num_threads = num_threads
        path = resolve_model(None)
        self.tokenizer = Tokenizer.open(path)
        self.executor = self.load(Checkpoint.open(path))
        self.other = self.executor.sharing_weights(self.executor.kv)
        text = (data / "text" / "classic-books" / "test.txt").read_text("utf-8")
        self.token_ids = encode_prompt(self.tokenizer, text[:2_000_000])
        self.console = Console(stderr=True)
        self.rows: list[Row] = []

    def load(self, checkpoint: Checkpoint) -> LoadedExecutor:
        return load_executor(
            checkpoint,
            RunOptions(num_pages=NUM_PAGES, threads=ThreadPlan.resolve(self.num_threads)),
        )

    def piece(self, number: int, num_tokens: int) -> list[int]:
        """Returns tokens from a different place of the text for each number."""
        start = number * 1009 % (len(self.token_ids) - num_tokens)
        return self.token_ids[start : start + num_tokens]

    def rounds(self, batch: int = 1) -> list[list[list[int]]]:
        return [
            [self.piece(number * batch + i, PROMPT_TOKENS) for i in range(batch)]
            for number in range(self.num_rounds + 1)
        ]

    def make(self, config: SpeculationConfig) -> Speculator:
        return make_speculator(
            config,
            self.executor,
            self.tokenizer,
            RunOptions(threads=ThreadPlan.resolve(self.num_threads)),
        )

    def compare(
        self, section: str, config: SpeculationConfig, requests: RequestRounds, costs: Costs | None
    ) -> SpeculationSpeed:
        speed = compare_speculation(
            (self.executor, self.other), self.tokenizer, self.make(config), requests
        )
        fixed = None
        if self.with_fixed and costs:
            fixed = best_fixed(
                config,
                lambda always: compare_speculation(
                    (self.executor, self.other), self.tokenizer, self.make(always), requests
                ),
            )
        self.add(section, speed, costs, fixed)
        return speed

    def compare_scripted(
        self,
        config: SpeculationConfig,
        scripts: Sequence[list[int]],
        rounds: list[list[list[int]]],
        costs: Costs,
    ) -> None:
        requests = RequestRounds(name=f"{config.kind}, copied text", rounds=rounds, params=GREEDY)
        speculator = self.make(config)
        executors = scripted(self.executor, scripts), scripted(self.other, scripts)
        speed = compare_speculation(executors, self.tokenizer, speculator, requests)
        self.add("lookup", speed, costs)

    def add(
        self,
        section: str,
        speed: SpeculationSpeed,
        costs: Costs | None,
        fixed: tuple[float, int] | None = None,
    ) -> None:
        ceiling = None if costs is None else costs.ceiling(speed.acceptance_rate)
        self.rows.append(Row(section=section, speed=speed, ceiling=ceiling, fixed=fixed))
        self.console.print(f"{section}: {speed.name}: {speed.gain:.2f}x")

    def costs(self, draft: LoadedExecutor | None = None) -> Costs:
        return costs_of(self.executor, draft)


def best_fixed(
    config: SpeculationConfig, speed_with: Callable[[SpeculationConfig], SpeculationSpeed]
) -> tuple[float, int]:
    """Returns the best gain of one number of draft tokens for all, and that number."""
    return max(
        (speed_with(replace(config, max_draft_tokens=k, is_adaptive=False)).gain, k) for k in FIXED
    )


def run_draft(bench: Bench, draft_folder: Path) -> float:
    """Returns the acceptance rate of greedy draft tokens."""
    found = 0.0
    for label, folder in (("int8 draft", resolve_model("draft")), ("int4 draft", draft_folder)):
        config = SpeculationConfig(kind="draft", draft_model=folder)
        proposer = bench.make(config).proposer
        assert isinstance(proposer, DraftModelProposer)
        assert isinstance(proposer.executor, NativeExecutor)
        costs = bench.costs(proposer.executor)
        for draw, params in DRAWS.items():
            requests = RequestRounds(name=f"{draw}, {label}", rounds=bench.rounds(), params=params)
            speed = bench.compare("draft", config, requests, costs)
            if params is GREEDY and not found:
                found = speed.acceptance_rate
    return found


def run_lookup(bench: Bench) -> None:
    costs = bench.costs()
    for kind in ("ngram", "suffix"):
        for draw, params in DRAWS.items():
            requests = RequestRounds(name=f"{kind}, {draw}", rounds=bench.rounds(), params=params)
            bench.compare("lookup", SpeculationConfig(kind=kind), requests, costs)
    copies = [copied(bench.piece(number, PASSAGE_TOKENS)) for number in range(bench.num_rounds + 1)]
    # The passage is in the prompt; for "reference" it is also given separately.
    scripts = [passage + copy for passage, copy in copies]
    rounds = [[script[: PASSAGE_TOKENS + PROMPT_TOKENS]] for script in scripts]
    bench.compare_scripted(SpeculationConfig(kind="ngram"), scripts, rounds, costs)
    bench.compare_scripted(SpeculationConfig(kind="suffix"), scripts, rounds, costs)
    config = SpeculationConfig(
        kind="reference", references=tuple(tuple(passage) for passage, _ in copies)
    )
    scripts = [copy for _, copy in copies]
    bench.compare_scripted(config, scripts, [[one[:PROMPT_TOKENS]] for one in scripts], costs)


def copied(passage: list[int]) -> tuple[list[int], list[int]]:
    """Returns a passage, and the same with a token in `CHANGE_EVERY` changed."""
    return passage, [one ^ (i % CHANGE_EVERY == CHANGE_EVERY - 1) for i, one in enumerate(passage)]


def run_batch(bench: Bench) -> None:
    for name, config in (
        ("ngram", SpeculationConfig(kind="ngram")),
        ("suffix", SpeculationConfig(kind="suffix")),
        ("int8 draft", SpeculationConfig(kind="draft")),
    ):
        for draw, params in DRAWS.items():
            rounds = bench.rounds(BATCH)
            requests = RequestRounds(name=f"{name}, {draw}, {BATCH}", rounds=rounds, params=params)
            bench.compare("batch", config, requests, None)


def run_replay(bench: Bench, root: Path, rate: float) -> None:
    """Runs the replay, where a round is one answer, since a model of this size takes seconds for
    it."""
    target = bench.load(Checkpoint.open(paredown_folder(root, TARGET_1B)))
    draft = bench.load(Checkpoint.open(paredown_folder(root, DRAFT_1B)))
    costs = costs_of(target, draft)
    scripts = [
        bench.piece(number, PROMPT_TOKENS + REPLAY_TOKENS) for number in range(bench.num_rounds + 1)
    ]
    other = target.sharing_weights(target.kv)
    executors = scripted(target, scripts), scripted(other, scripts)
    requests = RequestRounds(
        name=f"{TARGET_1B.model} {TARGET_1B.name}, acceptance {rate:.0%}",
        rounds=[[one[:PROMPT_TOKENS]] for one in scripts],
        params=replace(GREEDY, max_tokens=REPLAY_TOKENS),
    )

    def speed_with(config: SpeculationConfig) -> SpeculationSpeed:
        proposer = ReplayProposer(DraftModelProposer(draft), scripts, rate)
        speculator = Speculator(proposer, config)
        return compare_speculation(executors, bench.tokenizer, speculator, requests)

    config = SpeculationConfig(kind="draft", max_draft_tokens=MAX_DRAFT)
    speed = speed_with(config)
    fixed = best_fixed(config, speed_with) if bench.with_fixed else None
    bench.add("replay", speed, costs, fixed)


def print_rows(rows: Sequence[Row]) -> None:
    table = Table(title="speculation: generated tokens/s, prompts included")
    for heading in (
        "",
        "without",
        "with",
        "gain",
        "spread",
        "fixed",
        "ceiling",
        "tokens/step",
        "accepted",
    ):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_column("answers")
    for row in rows:
        speed = row.speed
        table.add_row(
            f"{row.section}: {speed.name}",
            f"{statistics.median(speed.without):,.1f}",
            f"{statistics.median(speed.speculating):,.1f}",
            f"{speed.gain:.2f}x",
            f"{speed.spread:.0%}",
            "" if row.fixed is None else f"{row.fixed[0]:.2f}x (K {row.fixed[1]})",
            "" if row.ceiling is None else f"{row.ceiling:.2f}x",
            f"{speed.tokens_per_step:.2f}",
            f"{speed.acceptance_rate:.0%}",
            f"{speed.num_different} differ" if speed.num_different else "same",
        )
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("PAREDOWN_DATA"))
    parser.add_argument("--only", nargs="*", default=list(SECTIONS), choices=SECTIONS)
    parser.add_argument("--fixed", action="store_true", help="also with one K for all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--root", type=Path, default=Path("runs/bench/models"))
    parser.add_argument("--rate", type=float, help="acceptance to replay (default: as measured)")
    parser.add_argument("--json", type=Path, help="write all rounds of all rows", metavar="OUT")
    args = parser.parse_args()
    if args.data is None:
        parser.error("--data, or $PAREDOWN_DATA, must name the folder of the texts")
    bench = Bench(
        Path(args.data),
        num_rounds=args.rounds,
        num_threads=args.threads,
        with_fixed=args.fixed,
    )
    rate = DEFAULT_RATE if args.rate is None else args.rate
    with tempfile.TemporaryDirectory() as folder:
        draft_folder = Path(folder) / "draft"
        compress(Checkpoint.open(resolve_model("draft")), draft_folder, DRAFT_RECIPE)
        if "draft" in args.only:
            measured = run_draft(bench, draft_folder)
            rate = measured if args.rate is None else args.rate
        if "lookup" in args.only:
            run_lookup(bench)
        if "batch" in args.only:
            run_batch(bench)
    if "replay" in args.only:
        run_replay(bench, args.root, rate)
    print_rows(bench.rows)
    print(f"{processor_name()}, {bench.executor.threads.prefill} threads, {args.rounds} rounds")
    if args.json is not None:
        rows = [asdict(row) | {"gain": row.speed.gain} for row in bench.rows]
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
