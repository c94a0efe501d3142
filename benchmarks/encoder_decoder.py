"""Encoder-decoder or decoder: seconds to an answer, of T5's shape and of a decoder of the same
width with as many parameters outside the tables.

    python -m benchmarks.encoder_decoder [--shape base|tiny] [--formats bf16 int8]
        [--prompts 32 512] [--outputs 16 128] [--batches 1 16] [--rounds N] [--clock wall|cpu]
        [--json OUT]

Random weights: both models answer with any tokens, to the length that is asked for. The models take
turns in each round, and each step of the engine counts with the median of its times in all rounds.
With `--clock cpu` times are processor seconds of one thread, for a machine that others use.
Predictions stand beside them where `paredown doctor --sweep` has measured the machine, with the
bandwidth of memory that is measured before each answer: the median of all rounds, too.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.checkpoints.folder import write_random_checkpoint
from benchmarks.clock import CLOCKS, num_threads_of
from benchmarks.cpu_peers import BENCH_FOLDER
from benchmarks.two_stacks.predict import at_bandwidth, predicted_seconds
from benchmarks.two_stacks.run import Load, Step, median_of, run_steps, seconds_to_outputs
from benchmarks.two_stacks.shapes import BASE, TINY, Shape
from paredown.compress.compress import compress
from paredown.cost.machine_file import find_step_fit
from paredown.cost.predicted_step import PredictedStep
from paredown.engine.llm import LLM
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import measure_bandwidth, processor_name
from paredown.models.checkpoint import Checkpoint
from paredown.models.run_forms import model_formats
from paredown.spec.kv import PAGE_SIZE

SHAPES = {"base": BASE, "tiny": TINY}
# Each round computes all of its prompts.
SCHEDULE = ScheduleConfig(prefix_cache=False)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Seconds until every request of a load had its answer, by model, and the bandwidth of memory
    that the predictions count on."""

    format: str
    load: Load
    measured_s: dict[str, float]
    predicted_s: dict[str, float]
    bandwidth_bytes_per_s: float

    @property
    def winner(self) -> str:
        return min(self.measured_s, key=self.measured_s.__getitem__)


def folder_of(folder: Path, shape: Shape, model: str, form: str) -> Path:
    """Returns the checkpoint, which is written unless it is there."""
    source = folder / f"{shape.hidden_size}-{shape.num_layers}-{model}"
    if not source.exists():
        write_random_checkpoint(shape.configs()[model], source)
    if form == "bf16":
        return source
    made = source.with_name(f"{source.name}-{form}")
    if not made.exists():
        compress(Checkpoint.open(source), made, f"{form}-head-{form}")
    return made


def measure(arguments: argparse.Namespace) -> list[Row]:
    shape, num_threads = SHAPES[arguments.shape], num_threads_of(None, arguments.clock)
    longest = max(arguments.prompts) + max(arguments.outputs)
    num_pages = max(arguments.batches) * (longest // PAGE_SIZE + 3)
    rows = []
    for form in arguments.formats:
        folders = {
            model: folder_of(arguments.folder, shape, model, form) for model in shape.configs()
        }
        costs = {model: cost_of(path, num_threads) for model, path in folders.items()}
        llms = {
            model: LLM(path, num_pages=num_pages, num_threads=num_threads, config=SCHEDULE)
            for model, path in folders.items()
        }
        for batch in arguments.batches:
            for prompt_tokens in arguments.prompts:
                load = Load(
                    batch=batch,
                    prompt_tokens=prompt_tokens,
                    output_tokens=max(arguments.outputs),
                )
                rows += rows_of(form, load, llms, costs, arguments)
    return rows


def rows_of(
    form: str,
    load: Load,
    llms: dict[str, LLM],
    costs: dict[str, PredictedStep | None],
    arguments: argparse.Namespace,
) -> list[Row]:
    outputs: Sequence[int] = arguments.outputs
    rounds: dict[str, list[list[Step]]] = {model: [] for model in llms}
    bandwidths = list[float]()
    for _ in range(arguments.rounds):
        for model, llm in llms.items():
            bandwidths.append(measure_bandwidth(num_threads_of(None, arguments.clock)))
            rounds[model].append(run_steps(llm, load, arguments.clock))
    measured = {
        model: seconds_to_outputs(median_of(found), outputs) for model, found in rounds.items()
    }
    bandwidth = median(bandwidths)
    predicted = {
        model: predicted_seconds(at_bandwidth(cost, bandwidth), load, outputs)
        for model, cost in costs.items()
        if cost is not None
    }
    made = []
    for output in outputs:
        row = Row(
            format=form,
            load=Load(batch=load.batch, prompt_tokens=load.prompt_tokens, output_tokens=output),
            measured_s={model: found[output] for model, found in measured.items()},
            predicted_s={model: found[output] for model, found in predicted.items()},
            bandwidth_bytes_per_s=bandwidth,
        )
        print(line(row), flush=True)
        made.append(row)
    return made


def cost_of(folder: Path, num_threads: int) -> PredictedStep | None:
    """Returns the cost model's steps, or None for a machine that was not measured."""
    found = find_step_fit(processor_name(), chosen_isa(), num_threads)
    checkpoint = Checkpoint.open(folder)
    formats = model_formats(checkpoint)
    if found is None or not found.knows(formats):
        return None
    return PredictedStep(spec=checkpoint.spec, formats=formats, fit=found)


def line(row: Row) -> str:
    load = row.load
    cells = [f"{row.format:>5} {load.batch:>3} {load.prompt_tokens:>5} {load.output_tokens:>4}"]
    for model, seconds in row.measured_s.items():
        cells.append(f"{model} {seconds:8.3f} s")
        if model in row.predicted_s:
            cells.append(f"({row.predicted_s[model] / seconds - 1:+.0%})")
    memory = f"{row.bandwidth_bytes_per_s / 1e9:.1f} GB/s"
    return "  ".join([*cells, memory, f"-> {row.winner}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="base")
    parser.add_argument("--formats", nargs="+", default=["bf16", "int8"])
    parser.add_argument("--prompts", nargs="+", type=int, default=[32, 512, 2048])
    parser.add_argument("--outputs", nargs="+", type=int, default=[16, 128, 512])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--folder", type=Path, default=BENCH_FOLDER / "two_stacks")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for model, spec in SHAPES[arguments.shape].specs().items():
        print(f"{model}: {spec.num_linear_parameters():,} weights outside the tables")
    print("format batch prompt output: seconds (prediction beside them)")
    rows = measure(arguments)
    if arguments.json is not None:
        tables = [
            {
                "format": row.format,
                "batch": row.load.batch,
                "prompt_tokens": row.load.prompt_tokens,
                "output_tokens": row.load.output_tokens,
                "measured_s": row.measured_s,
                "predicted_s": row.predicted_s,
                "bandwidth_bytes_per_s": row.bandwidth_bytes_per_s,
            }
            for row in rows
        ]
        arguments.json.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
