"""GET /metrics: what the engine counts, in Prometheus' text format (version 0.0.4).

The numbers are read beside the engine's thread, between any two of its instructions: each is right,
but two of them may be of different steps.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.engine import Engine
from paredown.engine.speculate.stats import SpeculationStats
from paredown.serve.state import ServerState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """`values` by the value of its one label, or a single one under ""."""

    name: str
    help: str
    kind: Literal["gauge", "counter"]
    values: Mapping[str, float] = field(default_factory=dict)
    label: str = ""

    def lines(self) -> Iterator[str]:
        name = f"paredown_{self.name}"
        yield f"# HELP {name} {self.help}"
        yield f"# TYPE {name} {self.kind}"
        for key, value in self.values.items():
            label = f'{{{self.label}="{key}"}}' if self.label else ""
            yield f"{name}{label} {value}"


async def show_metrics(request: Request) -> Response:
    """Before the model is loaded `paredown_ready` alone."""
    state: ServerState = request.app.state.server
    metrics = [gauge("ready", "1 while requests are answered.", state.worker.status == "ready")]
    if state.worker.engine is not None:
        metrics += engine_metrics(state.worker.engine)
    text = "".join(f"{line}\n" for one in metrics for line in one.lines())
    return Response(text, media_type=CONTENT_TYPE)


def engine_metrics(engine: Engine) -> list[Metric]:
    scheduler, cache = engine.scheduler, engine.scheduler.cache.stats
    pool = scheduler.pool
    metrics = [
        gauge("requests_running", "Requests that have pages.", len(scheduler.running)),
        gauge("requests_waiting", "Requests that wait to run.", scheduler.num_waiting),
        gauge("pages", "Pages of keys and values there are.", pool.num_pages),
        gauge("pages_used", "Pages that requests hold.", pool.num_pages - pool.num_free),
        gauge("pages_idle", "Pages that nobody holds and whose tokens are kept.", pool.num_idle),
        counter("preemptions", "Requests sent back to the queue.", scheduler.num_preemptions),
        counter("prefix_cache_queries", "Requests that looked for a prefix.", cache.num_queries),
        counter("prefix_cache_hits", "Requests that found one.", cache.num_hits),
        counter("prefix_cache_query_tokens", "Tokens looked for.", cache.num_queried_tokens),
        counter("prefix_cache_hit_tokens", "Tokens found.", cache.num_hit_tokens),
        counter("prefix_cache_evictions", "Pages whose tokens were dropped.", cache.num_evictions),
    ]
    if engine.speculator is not None:
        metrics += speculation_metrics(engine.speculator.stats)
    return metrics


def speculation_metrics(stats: SpeculationStats) -> list[Metric]:
    """The first draft token of a draft stands at position 1."""
    return [
        counter("speculation_steps", "Steps of a request that gave it tokens.", stats.num_steps),
        counter("speculation_tokens", "Tokens that they gave.", stats.num_tokens),
        Metric(
            name="speculation_proposed_total",
            help="Draft tokens by their position in a draft.",
            kind="counter",
            values=_by_position(stats.num_proposed),
            label="position",
        ),
        Metric(
            name="speculation_accepted_total",
            help="Draft tokens that were accepted, by their position in a draft.",
            kind="counter",
            values=_by_position(stats.num_accepted),
            label="position",
        ),
        counter("speculation_seconds", "Time that drafting took.", stats.drafting_s),
        gauge(
            "speculation_failed", "1 when drafting failed and is off.", stats.failure is not None
        ),
    ]


def gauge(name: str, help: str, value: float) -> Metric:
    return Metric(name=name, help=help, kind="gauge", values={"": float(value)})


def counter(name: str, help: str, value: float) -> Metric:
    return Metric(name=f"{name}_total", help=help, kind="counter", values={"": float(value)})


def _by_position(counts: list[int]) -> dict[str, float]:
    return {str(i): float(count) for i, count in enumerate(tuple(counts), 1)}
