"""`paredown bench`: decode and prefill speed, beside the limits of this machine, and what
speculation gains."""

import argparse
import json
import statistics
from dataclasses import asdict

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from paredown.cli.bench_hidden import add_sweep_arguments, run_sweep
from paredown.cli.kv_dtype import add_kv_dtype_argument
from paredown.cli.notes import tell_notes
from paredown.cli.speculation import add_speculation_arguments, speculation_config
from paredown.engine.memory.memory_plan import page_arithmetic
from paredown.engine.native.native_executor import NativeExecutor, load_executor
from paredown.engine.native.packed_cache import CacheConfig
from paredown.engine.prompt import encode_prompt
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.speculate.make_speculator import make_speculator
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.errors import ConfigError
from paredown.evaluate.measurement import Measurement, linear_format, make_measurement
from paredown.evaluate.speculation import SpeculationSpeed, Workload, compare_speculation
from paredown.evaluate.speed import PREFILL_TOKENS, Trial, run_rounds, speed_pages
from paredown.kernels.probe import measure_machine
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.tokenizer import Tokenizer
from paredown.spec.kv import KVSpec
from paredown.spec.machine import Machine
from paredown.units import format_rate

EXAMPLES = """examples:
  paredown bench
  paredown bench my-model-int4 --threads 1
  paredown bench my-model --rounds 15 --json
  paredown bench my-model --kv-dtype int8
  paredown bench --speculate draft
  paredown bench --sweep hidden --sweep-weights int4-g32 --sweep-plot hidden.png
"""
PROMPTS = (
    "The old house stood at the end of the lane, and",
    "In the morning the",
    "He looked at the sea for a long time before he spoke.",
    "It was",
)
MAX_TOKENS = 128
# Of one sequence, which is short.
_NUM_PAGES = 32
# How answers are drawn where speculation is measured.
DRAWS = {"greedy": 0.0, "temperature 0.8": 0.8}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "model", nargs="?", help="folder or .gguf file (default: the packaged model)"
    )
    parser.add_argument("--rounds", type=int, default=11, help="measured rounds (default 11)")
    parser.add_argument("--threads", type=int, default=None, help="threads (default: all cores)")
    add_kv_dtype_argument(parser)
    add_speculation_arguments(parser)
    add_sweep_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    if args.sweep is not None:
        return run_sweep(args)
    if args.rounds < 1:
        raise ConfigError("--rounds must be at least one", seen=args.rounds, remedy="Give more.")
    speculation = speculation_config(args)
    checkpoint = Checkpoint.open(resolve_model(args.model))
    tell_notes(checkpoint.notes)
    executor = load_executor(
        checkpoint,
        num_pages=speed_pages(checkpoint.spec),
        num_threads=args.threads,
        kv_dtype=args.kv_dtype,
        cache=CacheConfig.from_environment(),
    )
    executor.wait_for_cache()
    trial = Trial(executor=executor, weights=linear_format(checkpoint))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=None)
        machine = measure_machine(executor.num_threads)
        run_rounds(
            [trial],
            args.rounds,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    result = make_measurement(checkpoint.path.name, checkpoint, speed=trial.speed(machine))
    gains = []
    if speculation is not None:
        gains = _measure_speculation(checkpoint, executor, speculation, args.rounds)
    if args.json:
        listed = [asdict(one) | {"gain": one.gain, "spread": one.spread} for one in gains]
        extra = {"machine": asdict(machine)} | ({"speculation": listed} if gains else {})
        print(json.dumps(result.as_json() | extra, indent=2))
        return 0
    _print(result, machine, trial.weights.name)
    print(page_arithmetic(executor.spec, executor.kv))
    if gains:
        _print_speculation(gains)
    return 0


def _measure_speculation(
    checkpoint: Checkpoint, executor: NativeExecutor, config: SpeculationConfig, num_rounds: int
) -> list[SpeculationSpeed]:
    """One sequence at a time, each way of drawing in turn."""
    tokenizer = Tokenizer.open(checkpoint.path)
    prompts = [encode_prompt(tokenizer, text) for text in PROMPTS]
    kv = KVSpec(num_pages=_NUM_PAGES, dtype=executor.kv_dtype)
    executors = (executor.sharing_weights(kv), executor.sharing_weights(kv))
    gains = []
    for name, temperature in DRAWS.items():
        speculator = make_speculator(
            config, executors[1], tokenizer, num_threads=executor.num_threads
        )
        params = SamplingParams(
            temperature=temperature, seed=1, max_tokens=MAX_TOKENS, ignore_eos=True
        )
        rounds = [[prompts[i % len(prompts)]] for i in range(num_rounds + 1)]
        workload = Workload(name=name, rounds=rounds, params=params)
        gains.append(compare_speculation(executors, tokenizer, speculator, workload))
    return gains


def _print_speculation(gains: list[SpeculationSpeed]) -> None:
    table = Table(title="speculation, one sequence, tokens/s")
    for heading in ("", "without", "with", "gain", "spread", "tokens/step", "accepted"):
        table.add_column(heading, justify="right" if heading else "left")
    for one in gains:
        table.add_row(
            one.name,
            f"{statistics.median(one.without):,.0f}",
            f"{statistics.median(one.speculating):,.0f}",
            f"{one.gain:.2f}x",
            f"{one.spread:.1%}",
            f"{one.tokens_per_step:.2f}",
            f"{one.acceptance:.0%}",
        )
    Console().print(table)
    num_different = sum(one.num_different for one in gains)
    assert not num_different, f"{num_different} answers differ with speculation"


def _print(result: Measurement, machine: Machine, format_name: str) -> None:
    table = Table(title=f"{result.name} ({format_name}), {machine.num_threads} threads")
    for heading in ("", "tokens/s", "spread", "of the machine's limit"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row(
        "decode, one sequence",
        f"{result.decode_tokens_per_s:,.0f}",
        f"{result.decode_spread:.1%}",
        f"MBU {result.mbu:.0%}",
    )
    table.add_row(
        f"prefill, {PREFILL_TOKENS} tokens",
        f"{result.prefill_tokens_per_s:,.0f}",
        f"{result.prefill_spread:.1%}",
        f"MFU {result.mfu:.0%}",
    )
    console = Console()
    console.print(table)
    console.print(
        f"{machine.name}, {machine.isa}: memory {format_rate(machine.bandwidth_bytes_per_s, 'B/s')}"
        f", int8 {format_rate(machine.int8_ops_per_s, 'op/s')}"
        f", bf16 {format_rate(machine.bf16_flops_per_s, 'FLOP/s')}"
        f", fp32 {format_rate(machine.fp32_flops_per_s, 'FLOP/s')}, measured in this run. "
        "MBU is to the bandwidth of a buffer as large as the model.",
        style="dim",
    )
