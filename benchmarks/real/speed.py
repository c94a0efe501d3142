"""Speed on the real files, and on mixtures of the 1B shape, beside llama.cpp at its best."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.cases import DECODE_PROMPT_TOKENS, DECODE_STEPS, PREFILL_TOKENS, Bar, Case
from benchmarks.checkpoints.cache import FILE, Variant
from benchmarks.peers import OURS
from benchmarks.real.row import Row, Section
from benchmarks.report import Row as Measured
from benchmarks.report import make_row
from benchmarks.rounds import Children, Rounds, run_case

LLAMA_CPP = "llama.cpp"
MIXTURES = ("q4_k_m", "q5_k_m", "q6_k")
MIXED_MODEL = "llama-3.2-1b"
MIN_PREFILL_RATIO = 1.5
MIN_DECODE_RATIO = 1.1
# Of the bandwidth, where llama.cpp is near it already.
MIN_DECODE_UTILIZATION = 0.9
ROUNDS = Rounds(most=7, case_s=30.0)


def cases(model: str, name: str) -> list[Case]:
    variant = Variant(model=model, format=name)
    return [
        Case(
            task="prefill",
            variant=variant,
            prompt_tokens=PREFILL_TOKENS,
            bar=Bar(min_ratio=MIN_PREFILL_RATIO),
        ),
        Case(
            task="decode",
            variant=variant,
            prompt_tokens=DECODE_PROMPT_TOKENS,
            num_steps=DECODE_STEPS,
            bar=Bar(min_ratio=MIN_DECODE_RATIO),
        ),
    ]


def as_row(measured: Measured) -> Row:
    ours = measured.rates.get(OURS)
    theirs = measured.rates.get(LLAMA_CPP)
    if ours is None or theirs is None or measured.ratio is None:
        return Row(
            name=measured.name,
            asked=_asked(measured),
            found="; ".join(f"{name}: {why}" for name, why in measured.failures.items()),
            meets=False,
        )
    share = measured.utilization.median if measured.utilization else 0.0
    meets = measured.ratio.median >= (measured.bar.min_ratio or 0.0)
    if measured.utilization_name == "MBU":
        meets = meets or share >= MIN_DECODE_UTILIZATION
    ratio = measured.ratio
    return Row(
        name=measured.name,
        asked=_asked(measured),
        found=f"{ours.median:,.1f} beside {theirs.median:,.1f} tokens/s: {ratio.median:.2f}x "
        f"({ratio.min:.2f}..{ratio.max:.2f}), {measured.utilization_name} {share:.2f}",
        meets=meets,
    )


def section(real_root: Path, names: Iterable[str], shapes_root: Path, num_threads: int) -> Section:
    """`real_root` has the real models, `shapes_root` keeps those of random weights."""
    found = [(real_root, case) for name in names for case in cases(name, FILE)]
    found += [(shapes_root, case) for name in MIXTURES for case in cases(MIXED_MODEL, name)]
    return Section(
        title="Speed beside llama.cpp",
        protocol=f"The same GGUF files, {num_threads} threads, in turns, medians of at most "
        f"{ROUNDS.most} rounds; prompts of {PREFILL_TOKENS} tokens, answers of {DECODE_STEPS}. "
        "llama.cpp's settings are the fastest of those tried. Mixtures of the 1B shape are made "
        "by llama.cpp's own quantizer of random weights.",
        rows=_measure(found, shapes_root.parent / "logs", num_threads),
    )


def _measure(found: Sequence[tuple[Path, Case]], logs: Path, num_threads: int) -> list[Row]:
    rows = []
    with Children(logs=logs) as children:
        for root, case in found:
            print(f"speed: {case.name}", file=sys.stderr, flush=True)
            run = run_case(
                children, root, case, [OURS, LLAMA_CPP], num_threads=num_threads, rounds=ROUNDS
            )
            rows.append(as_row(make_row(run)))
    return rows


def _asked(measured: Measured) -> str:
    least = f"{measured.bar.min_ratio}x"
    if measured.utilization_name == "MBU":
        return f"{least}, or MBU {MIN_DECODE_UTILIZATION}"
    return least
