"""The tables of `paredown simulate` and `paredown plan`."""

from rich.console import Console
from rich.table import Table

from paredown.cli.tables.columns import add_columns
from paredown.plan.simulation import Distribution, LatencyLimits, Simulation
from paredown.units import format_count


def print_simulation(found: Simulation, limits: LatencyLimits, console: Console) -> None:
    """Prints latencies, then the outcome of the requests and the load of the machines."""
    table = Table(title="simulated latencies")
    add_columns(table, ("to", "mean", "p50", "p95", "p99", "limit", "kept by"), left=("to",))
    for name, one, limit_s in (
        ("first token", found.ttft, limits.ttft_s),
        ("each next one", found.tpot, limits.tpot_s),
        ("last token", found.e2e, limits.e2e_s),
    ):
        table.add_row(name, *_figures(one, limit_s))
    console.print(table)
    lines = [
        f"{format_count(found.num_requests, 'request')}, {len(found.e2es_s):,} of them computed on "
        f"{format_count(found.num_replicas, 'machine')} in {found.duration_s:,.0f} s; goodput "
        f"{found.goodput(limits):.1%} of those that reached a machine",
        f"machines computing {found.utilization:.0%} of the time, "
        f"{found.num_step_tokens / max(found.num_steps, 1):,.0f} tokens a step; "
        f"{format_count(found.num_preemptions, 'preemption')}; "
        f"{found.prefix_hit_rate:.0%} of prompt tokens found in prefix caches",
    ]
    lost = [
        (found.num_hits, "answered by the response cache"),
        (found.num_refused, "refused, the queue was full"),
        (found.num_too_long, "refused, longer than the context or the pages"),
    ]
    lines += [f"{format_count(count, 'request')} {what}" for count, what in lost if count]
    for line in lines:
        console.print(line, style="dim")


def format_rate_of(per_s: float) -> str:
    return f"{per_s:,.2f}" if per_s < 10 else f"{per_s:,.1f}" if per_s < 1000 else f"{per_s:,.0f}"


def format_seconds(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def _figures(one: Distribution, limit_s: float | None) -> list[str]:
    values = [one.mean, *(one.quantile(share) for share in (0.5, 0.95, 0.99))]
    cells = [format_seconds(value) for value in values]
    if limit_s is None:
        return [*cells, "", ""]
    return [*cells, format_seconds(limit_s), f"{one.share_within(limit_s):.1%}"]
