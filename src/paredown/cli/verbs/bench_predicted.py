"""`paredown bench`: compares the prediction for this machine with the measurement."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from rich import box
from rich.console import Console
from rich.table import Table

from paredown.cli.tables.columns import add_columns
from paredown.cli.tables.simulation import format_seconds
from paredown.cost.machine_file import find_step_fit
from paredown.cost.predicted_step import PredictedStep
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.evaluate.load.benchmark import Cell, LoadResult
from paredown.evaluate.quality.measurement import Measurement
from paredown.evaluate.speed.speed import Trial
from paredown.executors.protocol import LoadedExecutor
from paredown.kernels.probe import processor_name
from paredown.models.checkpoint import Checkpoint
from paredown.models.run_forms import model_formats
from paredown.plan.predicted_load import Compared, compare_alone, compare_cell
from paredown.plan.simulate import Fleet
from paredown.spec.kept_pages import KeptPages


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """Predicts from `cost`; if that is None, `missing` says why nothing can be predicted."""

    cost: PredictedStep | None
    fleet: Fleet
    missing: str = ""

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        executor: LoadedExecutor,
        config: ScheduleConfig,
        *,
        speculates: bool,
    ) -> "Predictor":
        spec = executor.spec
        fleet = Fleet(
            num_pages=executor.num_pages,
            max_positions=spec.max_positions,
            windows=spec.windows,
            kept=KeptPages.of(executor.context),
            schedule=config,
        )
        if speculates:
            missing = "steps with draft tokens are not simulated; leave --speculate out"
            return cls(cost=None, fleet=fleet, missing=missing)
        threads = executor.threads.prefill
        fit = find_step_fit(processor_name(), executor.arithmetic.get("isa", ""), threads)
        if fit is None:
            missing = (
                f"this machine's kernels were not measured with --threads {threads}: "
                f"`paredown doctor --sweep --threads {threads}` does"
            )
            return cls(cost=None, fleet=fleet, missing=missing)
        formats = replace(model_formats(checkpoint), kv_dtype=executor.kv.dtype)
        if not fit.knows(formats):
            missing = f"`paredown doctor --sweep` measured no {formats.name}"
            return cls(cost=None, fleet=fleet, missing=missing)
        cost = PredictedStep(spec=spec, formats=formats, fit=fit)
        return cls(cost=cost, fleet=fleet)

    def compare(
        self,
        trial: Trial,
        alone: Measurement,
        cells: Sequence[Cell],
        results: Sequence[LoadResult],
    ) -> list[Compared]:
        """Compares one sequence on the executor, then each cell through the engine."""
        if self.cost is None:
            return []
        found = compare_alone(self.cost, trial, alone)
        for cell, result in zip(cells, results, strict=True):
            found += compare_cell(self.cost, self.fleet, cell, result)
        return found


def compared_json(predictor: Predictor, rows: Sequence[Compared]) -> dict[str, object]:
    """Returns the comparison as JSON. Figures are null where nothing can be predicted; `missing`
    says why."""
    if predictor.cost is None:
        return {"predicted": None, "missing": predictor.missing}
    return {"predicted": [asdict(one) | {"ratio": one.ratio} for one in rows]}


def print_compared(console: Console, predictor: Predictor, rows: Sequence[Compared]) -> None:
    if predictor.cost is None:
        console.print(f"not predicted: {predictor.missing}", style="dim")
        return
    title = "predicted from `doctor --sweep`, measured"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0, show_edge=False, pad_edge=False)
    add_columns(table, ("load", "figure", "predicted", "measured", "ratio"), ("load", "figure"))
    for before, one in zip((None, *rows), rows, strict=False):
        is_first = before is None or before.load != one.load
        table.add_row(
            one.load if is_first else "",
            one.figure,
            _value(one, one.predicted),
            _value(one, one.measured),
            f"{one.ratio:.2f}",
        )
    console.print(table)


def _value(one: Compared, value: float) -> str:
    return format_seconds(value) if one.figure in ("TTFT", "TPOT") else f"{value:.1%}"
