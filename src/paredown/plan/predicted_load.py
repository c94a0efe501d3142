"""Predicts by the cost model a load that `paredown bench` measures.

Latencies are simulated with the engine's own scheduler. MBU and MFU refer to the time in the
executor, as in the measurement: the same bytes and operations over the predicted time, relative to
the fit's bandwidth and peak.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from paredown.cost.model_formats import unit_of
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.evaluate.load.arrival import Arrival, together
from paredown.evaluate.load.benchmark import Cell, LoadResult
from paredown.evaluate.load.summary import step_bytes
from paredown.evaluate.quality.measurement import Measurement
from paredown.evaluate.speed.speed import PREFILL_TOKENS, Trial, prefill_flops
from paredown.plan.simulate import Fleet, simulate
from paredown.plan.workload import SimulatedRequest, simulated_request


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One figure: "TTFT" and "TPOT" are means in seconds, "MBU" and "MFU" shares."""

    load: str
    figure: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        """The predicted over the measured value."""
        return self.predicted / self.measured


@dataclass(frozen=True, kw_only=True)
class _Together:
    arrivals: Sequence[Arrival]

    @property
    def num_requests(self) -> int:
        return len(self.arrivals)

    @property
    def duration_s(self) -> float:
        return 0.0

    @property
    def shares_prefixes(self) -> bool:
        return False

    def __iter__(self) -> Iterator[SimulatedRequest]:
        return (simulated_request(one, 0.0) for one in self.arrivals)


def compare_alone(cost: PredictedStep, trial: Trial, measured: Measurement) -> list[Compared]:
    """Compares one sequence on the executor: MBU of decoding, MFU of a prompt
    (evaluate/speed/speed.py)."""
    assert measured.mbu is not None, "speed was not measured"
    assert measured.mfu is not None, "speed was not measured"
    alone, spec, fit = replace(cost, with_engine=False), cost.spec, cost.fit
    decode_s = alone.step_s(decode_load(1, trial.context, spec.windows))
    num_prefill = min(PREFILL_TOKENS, spec.max_positions)
    prefill_s = alone.step_s(prefill_load(num_prefill, 0, spec.windows))
    mbu = trial.step_bytes / decode_s / fit.bandwidth(trial.step_bytes)
    mfu = prefill_flops(spec, num_prefill) / prefill_s / _peak(cost)
    return [
        Compared(load="one sequence", figure="MBU", predicted=mbu, measured=measured.mbu),
        Compared(load="one sequence", figure="MFU", predicted=mfu, measured=measured.mfu),
    ]


def compare_cell(
    cost: PredictedStep, fleet: Fleet, cell: Cell, result: LoadResult
) -> list[Compared]:
    """Compares a batch through the engine. Figures that were not measured (one token has no TPOT)
    are left out."""
    measured = result.summary
    workload = _Together(
        arrivals=together(cell.batch, cell.num_input_tokens, cell.num_output_tokens)
    )
    latencies = simulate(workload, fleet, cost)
    executor_s = simulate(workload, fleet, replace(cost, with_engine=False)).busy_s
    num_runs = len(result.runs)
    num_bytes = sum(run.num_bytes for run in result.runs) / num_runs
    num_flops = sum(run.num_flops for run in result.runs) / num_runs
    bandwidth = cost.fit.bandwidth(step_bytes(result.runs))
    rows = [
        ("TTFT", latencies.ttft.mean, None if measured.ttft_s is None else measured.ttft_s.mean),
        ("TPOT", latencies.tpot.mean, None if measured.tpot_s is None else measured.tpot_s.mean),
        ("MBU", num_bytes / executor_s / bandwidth, measured.mbu),
        ("MFU", num_flops / executor_s / _peak(cost), measured.mfu),
    ]
    return [
        Compared(load=cell.name, figure=figure, predicted=predicted, measured=found)
        for figure, predicted, found in rows
        if found is not None
    ]


def _peak(cost: PredictedStep) -> float:
    unit = unit_of(cost.formats.linear, cost.formats.activation_bytes)
    return cost.fit.roofs.peak(unit)
