"""`paredown bench`: how fast a model answers on this machine, relative to its limits: one sequence,
batches, or requests that arrive over time; for an encoder, texts."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace

from rich.console import Console

from paredown.cli.console import make_console
from paredown.cli.options.encoder import add_task_argument
from paredown.cli.options.kv_dtype import add_kv_dtype_argument
from paredown.cli.options.kv_pages import add_kv_pages_arguments, num_pages
from paredown.cli.options.run import add_executor_arguments, run_keywords
from paredown.cli.options.schedule import step_budget_line
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.options.speculation import add_speculation_arguments, speculation_config
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.bench import (
    print_cells,
    print_limits,
    print_load,
    print_machine,
    print_speculation,
)
from paredown.cli.tables.notes import tell_notes
from paredown.cli.verbs.bench_encoder import bench_encoder
from paredown.cli.verbs.bench_hidden import add_sweep_arguments, run_sweep
from paredown.cli.verbs.bench_load import (
    DEFAULT_ROUNDS,
    BenchLoad,
    add_load_arguments,
    fit_defaults,
    load_config,
    parse_load,
)
from paredown.cli.verbs.bench_predicted import Predictor, compared_json, print_compared
from paredown.engine.build import assemble
from paredown.engine.encode.encoder_model import encodes
from paredown.engine.engine import Engine
from paredown.engine.prompt import encode_prompt
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.make_speculator import make_speculator
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.errors import ConfigError, UnsupportedError
from paredown.evaluate.load.arrival import fit
from paredown.evaluate.load.benchmark import LoadBenchmark, check_lengths, max_tokens_per_request
from paredown.evaluate.pictures.load_plot import write_plot
from paredown.evaluate.quality.measurement import Measurement, linear_format, make_measurement
from paredown.evaluate.speed.speculation import RequestRounds, SpeculationSpeed, compare_speculation
from paredown.evaluate.speed.speed import Trial, arithmetic_peak, run_rounds, speed_pages
from paredown.executors.load import load_executor
from paredown.executors.page_memory import page_arithmetic
from paredown.executors.protocol import Executor, LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.probe import measure_machine
from paredown.models.checkpoint import Checkpoint
from paredown.models.hub.hub_source import model_name
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.kv import PAGE_SIZE, KVSpec
from paredown.spec.machine import Machine

EXAMPLES = """examples:
  paredown bench
  paredown bench my-model-int4 --threads 1 --batch 1,16 --input-tokens 512
  paredown bench my-model --rounds 15 --json
  paredown bench --requests 200 --rate 20 --input-tokens 16-1024 --slo ttft=0.5s,tpot=50ms
  paredown bench --trace conversation.csv --requests 500 --plot latency.png
  paredown bench --speculate draft
  paredown bench all-MiniLM-L6-v2 --batch 1,32 --input-tokens 16,128
  paredown bench --sweep hidden --sweep-weights int4-g32 --sweep-plot hidden.png
"""
PROMPTS = (
    "The old house stood at the end of the lane, and",
    "In the morning the",
    "He looked at the sea for a long time before he spoke.",
    "It was",
)
MAX_TOKENS = 128
# Enough for one short sequence.
_NUM_PAGES = 32
# How answers are sampled when speculation is measured.
DRAWS = {"greedy": 0.0, "temperature 0.8": 0.8}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--rounds", type=int, help=f"measured rounds of batches (default {DEFAULT_ROUNDS})"
    )
    add_load_arguments(parser)
    add_task_argument(parser)
    add_executor_arguments(parser)
    add_kv_dtype_argument(parser)
    add_kv_pages_arguments(
        parser,
        "what the largest batch needs; for requests over time, from the free memory",
    )
    add_speculation_arguments(parser)
    add_sweep_arguments(parser)
    add_common_arguments(parser, decode_threads=True)


def run(args: argparse.Namespace) -> int:
    if args.sweep is not None:
        return run_sweep(args)
    if args.rounds is not None and args.rounds < 1:
        raise ConfigError("--rounds must be at least one", seen=args.rounds, remedy="Give more.")
    checkpoint = Checkpoint.open(resolve_model(args.model))
    tell_notes(checkpoint.notes)
    if encodes(checkpoint, args.task):
        return bench_encoder(args, checkpoint)
    load = parse_load(args)
    config, speculation = load_config(args, load), speculation_config(args)
    if checkpoint.spec.encoder is not None and not load.arrivals:
        raise UnsupportedError(
            "an encoder-decoder is not measured step by step, since two stacks take turns",
            seen=f"{checkpoint.path}, family {checkpoint.spec.family}",
            remedy="Measure requests that come in over time (--rate 4).",
        )
    load = fit_defaults(args, load, checkpoint.spec.max_positions)
    keywords = run_keywords(args)
    keywords["num_pages"] = _num_pages(args, checkpoint, load, speculation)
    options = RunOptions(**keywords)
    executor = load_executor(checkpoint, options)
    if not load.is_trace:
        check_lengths(load.arrivals or load.cells, executor)
    executor.wait_for_cache()
    bench = _Bench(checkpoint, executor, options, config, speculation, load)
    return (bench.over_time if load.arrivals else bench.batches)(args)


class _Bench:
    """A loaded model with the options of one benchmark. Results go to stdout, pictures to their
    paths."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        executor: LoadedExecutor,
        options: RunOptions,
        config: ScheduleConfig,
        speculation: SpeculationConfig | None,
        load: BenchLoad,
    ) -> None:
        self._checkpoint, self._executor, self._load = checkpoint, executor, load
        self._options, self._config, self._speculation = options, config, speculation
        self._tokenizer = Tokenizer.open(checkpoint.path)
        weights = linear_format(checkpoint)
        if options.activations in weights.possible_activations:
            weights = replace(weights, activations=options.activations)
        self._weights = weights

    def batches(self, args: argparse.Namespace) -> int:
        """Measures one sequence on the executor alone, then the cells through the engine."""
        load, num_rounds = self._load, args.rounds or DEFAULT_ROUNDS
        trial = Trial(executor=self._executor, weights=self._weights)
        with progress_bar("measuring") as progress:
            machine = measure_machine(self._executor.threads.prefill)
            run_rounds([trial], num_rounds, progress.show_count)
        with progress_bar("running batches") as progress:
            results = self._benchmark(machine).run_cells(
                load.cells, num_rounds, progress.show_count
            )
        result = make_measurement(
            model_name(self._checkpoint.path), self._checkpoint, speed=trial.speed(machine)
        )
        gains = self._speculation_gains(num_rounds)
        predictor = Predictor.of(
            self._checkpoint,
            self._executor,
            self._config,
            speculates=self._speculation is not None,
        )
        compared = predictor.compare(trial, result, load.cells, results)
        if load.plot is not None:
            write_plot(load.plot, results, model_name(self._checkpoint.path))
        if args.json:
            listed = [asdict(one) | {"gain": one.gain, "spread": one.spread} for one in gains]
            loads = [
                asdict(cell) | one.summary.as_json()
                for cell, one in zip(load.cells, results, strict=True)
            ]
            extra = {"loads": loads, **compared_json(predictor, compared)}
            extra |= {"speculation": listed} if gains else {}
            _print_json(result, machine, extra)
            return 0
        console = make_console()
        print_limits(console, result, machine, self._weights.name)
        print_cells(console, load.cells, results, load.slo)
        print_compared(console, predictor, compared)
        if gains:
            print_speculation(console, gains)
        self._print_rest(console, machine)
        return 0

    def over_time(self, args: argparse.Namespace) -> int:
        """Measures requests as they arrive."""
        load = self._load
        with progress_bar("measuring the machine") as progress:
            machine = measure_machine(self._executor.threads.prefill)
            benchmark = self._benchmark(machine)
            arrivals, num_cut = load.arrivals, 0
            if load.is_trace:
                arrivals, num_cut = fit(arrivals, max_tokens_per_request(self._executor))
            progress.show_note("answering")
            result = benchmark.run_arrivals(load.name, arrivals, progress.show_count)
        if load.plot is not None:
            write_plot(load.plot, [result], model_name(self._checkpoint.path))
        if args.json:
            measurement = make_measurement(model_name(self._checkpoint.path), self._checkpoint)
            summary = result.summary.as_json() | {"load": load.name, "num_cut": num_cut}
            _print_json(measurement, machine, {"loads": [summary]})
            return 0
        console = make_console()
        print_load(console, result, load.slo, num_cut)
        self._print_rest(console, machine)
        return 0

    def _benchmark(self, machine: Machine) -> LoadBenchmark:
        def make_engine(metered: Executor) -> Engine:
            return assemble(
                metered,
                self._tokenizer,
                self._options,
                schedule=self._config,
                speculation=self._speculation,
            )

        return LoadBenchmark(
            self._executor,
            make_engine,
            peak_per_s=arithmetic_peak(machine, self._weights),
            slo=self._load.slo,
            seed=self._load.seed,
        )

    def _speculation_gains(self, num_rounds: int) -> list[SpeculationSpeed]:
        """Measures one sequence at a time, with each sampling method in turn."""
        if self._speculation is None:
            return []
        kv = KVSpec(num_pages=_NUM_PAGES, dtype=self._executor.kv.dtype)
        answering = self._executor.sharing_weights(kv), self._executor.sharing_weights(kv)
        prompts = [encode_prompt(self._tokenizer, text) for text in PROMPTS]
        gains = []
        for name, temperature in DRAWS.items():
            speculator = make_speculator(
                self._speculation, self._executor, self._tokenizer, self._options
            )
            params = SamplingParams(
                temperature=temperature, seed=1, max_tokens=MAX_TOKENS, ignore_eos=True
            )
            rounds = [[prompts[i % len(prompts)]] for i in range(num_rounds + 1)]
            requests = RequestRounds(name=name, rounds=rounds, params=params)
            gains.append(compare_speculation(answering, self._tokenizer, speculator, requests))
        return gains

    def _print_rest(self, console: Console, machine: Machine) -> None:
        console.print(page_arithmetic(self._executor.context, self._executor.kv), style="dim")
        console.print(step_budget_line(self._config), style="dim")
        console.print(f"threads: {self._executor.threads.explained()}", style="dim")
        print_machine(console, machine)
        if self._load.plot is not None:
            console.print(f"picture: {self._load.plot}")


def _num_pages(
    args: argparse.Namespace,
    checkpoint: Checkpoint,
    load: BenchLoad,
    speculation: SpeculationConfig | None,
) -> int | None:
    """Returns the pages asked for. By default, requests over time get the free memory, and cells
    get what the largest one and its drafts need."""
    asked, least = num_pages(args, checkpoint), speed_pages(checkpoint.spec)
    if load.arrivals:
        return asked
    if asked is not None:
        if asked < least:
            raise ConfigError(
                "there are too few KV pages to measure", seen=asked, remedy=f"Use {least} or more."
            )
        return asked
    drafts = 0 if speculation is None else speculation.num_draft_tokens
    needed = [cell.num_pages + cell.batch * -(-drafts // PAGE_SIZE) for cell in load.cells]
    return max(least, *needed)


def _print_json(result: Measurement, machine: Machine, extra: Mapping[str, object]) -> None:
    say_json(result.as_json() | {"machine": asdict(machine), **extra})
