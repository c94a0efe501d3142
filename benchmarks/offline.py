"""Measures offline throughput: 64 mixed requests at once, on our engine and llama.cpp in turn.

    python -m benchmarks.offline [--models qwen2.5-0.5b default] [--rounds 5] [--json OUT.json]
    python -m benchmarks.offline --quick

Prompts of 16 to 1,024 tokens and answers of 16 to 256, drawn by --seed, the end of a text ignored;
all are there from the start. Both have the same random weights in 4 bits in groups of 32 (llama.cpp
Q4_0), the output layer in 8, and the same threads; each runs in a process of its own, one after the
other, and another one begins each round. Prompts are new each round, so that no cache knows
them. docs/internals/benchmarks.md says how peers are driven; benchmarks/peers/offline_llama_cpp.py
what is llama.cpp's part here.

ratio    their seconds over ours, round by round: median, least and greatest (asked: 1.5)
"""

import argparse
import datetime
import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.checkpoints.cache import PACKAGED, Variant, bf16_folder
from benchmarks.cpu_peers import BENCH_FOLDER, EXIT_BAD_INPUT
from benchmarks.figures import Spread
from benchmarks.peers import MACHINE, OURS, Target
from benchmarks.peers.child import PeerError
from benchmarks.peers.offline import Job
from benchmarks.peers.peer import LoadOptions
from benchmarks.rounds import Children, make_files
from paredown.errors import ConfigError, ParedownError
from paredown.kernels.probe import default_num_threads
from paredown.models.checkpoint import Checkpoint

THEIRS = "llama.cpp"
TARGETS = {
    OURS: Target(target="benchmarks.peers.offline_paredown:OfflineParedown"),
    THEIRS: Target(target="benchmarks.peers.offline_llama_cpp:OfflineLlamaCpp"),
    "machine": MACHINE,
}
VARIANTS = {
    model: Variant(model=model, format="int4-g32", output_format="int8")
    for model in ("qwen2.5-0.5b", PACKAGED, "llama-3.2-1b", "llama-15m", "tiny-qwen2")
}
MODELS = ("qwen2.5-0.5b", PACKAGED)
BAR = 1.5
# Settings are tried on requests that are shorter by this factor.
TRIAL_SHARE = 4


@dataclass(frozen=True, kw_only=True)
class Mix:
    """The number of requests, and the bounds of their uniformly drawn lengths."""

    num_requests: int = 64
    inputs: tuple[int, int] = (16, 1024)
    outputs: tuple[int, int] = (16, 256)

    def lengths(self, seed: int) -> list[tuple[int, int]]:
        rng = np.random.default_rng(seed)
        bounds = (self.inputs, self.outputs)
        drawn = [rng.integers(*one, self.num_requests, endpoint=True).tolist() for one in bounds]
        return list(zip(*drawn, strict=True))


QUICK = Mix(num_requests=12, inputs=(8, 64), outputs=(4, 16))


def make_jobs(
    lengths: list[tuple[int, int]], vocab_size: int, seed: int, share: int = 1
) -> list[Job]:
    """Returns prompts of random tokens; `share` divides all lengths."""
    rng = np.random.default_rng((1, seed))
    return [
        (rng.integers(vocab_size, size=-(-num_input // share)).tolist(), -(-num_output // share))
        for num_input, num_output in lengths
    ]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one model; `seconds` has a value per round for each engine."""

    model: str
    format: str
    num_input_tokens: int
    num_output_tokens: int
    seconds: dict[str, list[float]]
    settings: dict[str, dict[str, str]]

    @property
    def ratio(self) -> Spread:
        pairs = zip(self.seconds[THEIRS], self.seconds[OURS], strict=True)
        return Spread.of([theirs / ours for theirs, ours in pairs])

    def as_json(self) -> dict[str, Any]:
        ratio = self.ratio
        passed = ratio.median >= BAR
        return asdict(self) | {"ratio": asdict(ratio), "bar": BAR, "is_reached": passed}

    def text(self) -> str:
        lines = [
            f"{self.model}, {self.format}: {self.num_input_tokens:,} input and "
            f"{self.num_output_tokens:,} output tokens"
        ]
        for name, seconds in self.seconds.items():
            middle = statistics.median(seconds)
            lines.append(
                f"  {name:>10}: {middle:8.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
                f"{self.num_output_tokens / middle:8,.1f} output tokens/s"
            )
        ratio = self.ratio
        verdict = "reached" if ratio.median >= BAR else "missed"
        lines.append(
            f"  {'ratio':>10}: {ratio.median:8.2f} ({ratio.min:.2f} to {ratio.max:.2f}); "
            f"bar {BAR}: {verdict}"
        )
        for name, settings in self.settings.items():
            lines += [f"  {name}: {key}: {value}" for key, value in settings.items()]
        return "\n".join(lines)


def measure(
    children: Children, root: Path, model: str, mix: Mix, args: argparse.Namespace
) -> Result:
    """Measures one model. Raises PeerError for an engine that does not run."""
    variant = VARIANTS[model]
    make_files(root, variant, (OURS, THEIRS))
    vocab_size = Checkpoint.open(bf16_folder(root, model)).spec.vocab_size
    lengths = mix.lengths(args.seed)
    names = (OURS, THEIRS)
    for name in names:
        print(f"{model}: loading and trying {name}", file=sys.stderr, flush=True)
        trial = make_jobs(lengths, vocab_size, 0, TRIAL_SHARE)
        options = LoadOptions(
            num_threads=args.threads, num_tokens=max(map(sum, lengths)), num_sequences=len(lengths)
        )
        children.get(name).call("load", root, variant, options, trial)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(args.rounds):
        print(f"{model}: round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        jobs = make_jobs(lengths, vocab_size, number + 1)
        for name in names if number % 2 == 0 else names[::-1]:
            seconds[name].append(children.get(name).call("answer", jobs))
    settings = {name: children.get(name).call("settings") for name in names}
    for name in names:
        children.get(name).call("close")
    return Result(
        model=model,
        format=variant.name,
        num_input_tokens=sum(one for one, _ in lengths),
        num_output_tokens=sum(one for _, one in lengths),
        seconds=seconds,
        settings=settings,
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS, choices=VARIANTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--seed", type=int, default=0, help="of the lengths")
    parser.add_argument(
        "--quick", action="store_true", help="a few short requests: does it work at all?"
    )
    parser.add_argument("--folder", type=Path, default=BENCH_FOLDER, help="models and logs")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything measured")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    try:
        if args.rounds < 1:
            raise ConfigError("no rounds", seen=args.rounds, remedy="Ask for one or more.")
        mix = QUICK if args.quick else Mix()
        found = []
        with Children(logs=args.folder / "logs", targets=TARGETS, timeout_s=3600) as children:
            machine = children.get("machine").call("describe", args.threads)
            machine["date"] = datetime.date.today().isoformat()
            machine["load_average"] = os.getloadavg()[0]
            print(f"{machine['name']}, {machine['isa']}, {args.threads} threads, {machine['date']}")
            for model in args.models:
                found.append(measure(children, args.folder / "models", model, mix, args))
                print(found[-1].text(), flush=True)
                if args.json is not None:
                    document = {
                        "machine": machine,
                        "mix": asdict(mix) | {"seed": args.seed},
                        "results": [one.as_json() for one in found],
                    }
                    args.json.parent.mkdir(parents=True, exist_ok=True)
                    args.json.write_text(json.dumps(document, indent=2) + "\n")
    except (ParedownError, PeerError) as error:
        print(f"offline: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
