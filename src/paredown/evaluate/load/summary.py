"""LoadSummary: the figures of one load, over one run or several of the same kind."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from paredown.evaluate.load.run_load import LoadRun, Served
from paredown.evaluate.load.slo import SLO

# Latencies, by their names in a summary and in a served request.
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")


@dataclass(frozen=True, kw_only=True)
class Percentiles:
    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles | None":
        """Interpolates linearly between the values; returns None without values."""
        if not values:
            return None
        p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
        return cls(mean=statistics.fmean(values), p50=p50, p95=p95, p99=p99, max=max(values))


@dataclass(frozen=True, kw_only=True)
class LoadSummary:
    """Latencies are seconds over all requests of all runs (`itl_s` over all gaps). Rates are
    medians over the runs, per second of the whole run; `spread` is the interquartile range of the
    output rate over its median. `model_share` of the time was spent in the executor, to which MBU
    and MFU refer. `cached_share` of the input tokens came from the prefix cache. `goodput_per_s`
    counts requests per second that met the SLO; `goodput_share` is their share."""

    num_runs: int
    num_requests: int
    num_failed: int
    duration_s: float
    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    spread: float
    ttft_s: Percentiles | None
    tpot_s: Percentiles | None
    itl_s: Percentiles | None
    e2e_s: Percentiles | None
    queue_s: Percentiles | None
    mbu: float
    mfu: float
    model_share: float
    tokens_per_step: float
    cached_share: float
    num_preemptions: int
    most_waiting: int
    most_running: int
    most_kv_share: float
    num_proposed: int
    num_accepted: int
    goodput_per_s: float | None
    goodput_share: float | None

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def step_bytes(runs: Sequence[LoadRun]) -> int:
    """Returns the mean bytes read per step, which is the buffer size for the bandwidth in MBU."""
    return sum(one.num_bytes for one in runs) // max(1, sum(one.num_steps for one in runs))


def latencies(runs: Sequence[LoadRun], name: str) -> list[float]:
    """Returns the latencies of all answered requests; `name` is one of LATENCIES."""
    found: list[float] = []
    for one in _answered(runs):
        value = getattr(one, name)
        if value is not None:
            found += value if isinstance(value, list) else [value]
    return found


def summarize(
    runs: Sequence[LoadRun], *, bandwidth_bytes_per_s: float, peak_per_s: float, slo: SLO | None
) -> LoadSummary:
    """Returns the summary. `peak_per_s` is the peak of the arithmetic in use; both limits are
    measured."""
    served = [one for run in runs for one in run.served]
    outputs = [sum(one.num_tokens for one in run.served) / run.duration_s for run in runs]
    num_tokens = sum(one.num_tokens + one.num_input_tokens for one in served)
    num_met = None if slo is None else [sum(map(slo.is_met, run.served)) for run in runs]
    model_s = sum(run.model_s for run in runs)
    moments = [one for run in runs for one in run.moments]
    return LoadSummary(
        num_runs=len(runs),
        num_requests=len(served),
        num_failed=len(served) - len(_answered(runs)),
        duration_s=statistics.median(run.duration_s for run in runs),
        requests_per_s=statistics.median(len(run.served) / run.duration_s for run in runs),
        input_tokens_per_s=statistics.median(
            sum(one.num_input_tokens for one in run.served) / run.duration_s for run in runs
        ),
        output_tokens_per_s=statistics.median(outputs),
        spread=_spread(outputs),
        **{name: Percentiles.of(latencies(runs, name)) for name in LATENCIES},
        mbu=sum(run.num_bytes for run in runs) / model_s / bandwidth_bytes_per_s,
        mfu=sum(run.num_flops for run in runs) / model_s / peak_per_s,
        model_share=model_s / sum(run.duration_s for run in runs),
        tokens_per_step=num_tokens / sum(run.num_steps for run in runs),
        cached_share=sum(one.num_cached_tokens for one in served)
        / sum(one.num_input_tokens for one in served),
        num_preemptions=sum(run.num_preemptions for run in runs),
        most_waiting=max(one.num_waiting for one in moments),
        most_running=max(one.num_running for one in moments),
        most_kv_share=max(one.kv_share for one in moments),
        num_proposed=sum(run.num_proposed for run in runs),
        num_accepted=sum(run.num_accepted for run in runs),
        goodput_per_s=None
        if num_met is None
        else statistics.median(
            met / run.duration_s for met, run in zip(num_met, runs, strict=True)
        ),
        goodput_share=None if num_met is None else sum(num_met) / len(served),
    )


def _answered(runs: Sequence[LoadRun]) -> list[Served]:
    return [one for run in runs for one in run.served if one.failure is None]


def _spread(rates: Sequence[float]) -> float:
    if len(rates) < 2:
        return 0.0
    low, _, high = statistics.quantiles(rates, n=4, method="inclusive")
    return (high - low) / statistics.median(rates)
