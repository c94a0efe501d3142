"""GET /metrics: the engine's counters in Prometheus' text format (version 0.0.4).

The counters are read while the engine's thread runs: each is correct, but two of them may belong to
different steps.

Exact counts of prefix-cache hits would tell a client whether another one sent the same prompt. If
clients share prefixes, these numbers are therefore shown in steps (coarse.py).
"""

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.engine import Engine
from paredown.engine.speculate.stats import SpeculationStats
from paredown.serve.encoder_state import EncoderState
from paredown.serve.state import ServerState
from paredown.serve.watch.answer_metrics import REQUEST_STEP, answer_metrics
from paredown.serve.watch.encoder_metrics import encoder_metrics
from paredown.serve.watch.histogram_metric import HistogramMetric
from paredown.serve.watch.metric import Alias, Metric, Values, counter, gauge, total, vllm
from paredown.serve.watch.response_cache_metrics import response_cache_metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DRAFT_STEP = 1024
# A request as long as the context is visible with a probability of one in this many.
CONTEXTS_PER_STEP = 4
PAGES_SHOWN_AS = 8


async def show_metrics(request: Request) -> Response:
    """Returns the metrics; before the model is loaded only `paredown_ready`."""
    state: ServerState | EncoderState = request.app.state.server
    metrics: list[Metric | HistogramMetric] = [
        gauge("ready", "1 while requests are answered.", state.worker.status == "ready")
    ]
    if isinstance(state, EncoderState):
        metrics += encoder_metrics(state.worker)
    elif state.worker.engine is not None:
        metrics += engine_metrics(state.worker.engine)
        metrics += answer_metrics(state.answer_stats)
        metrics += state.utilization.gauges(state.worker.engine.meter.sums())
        if state.response_cache is not None:
            metrics += response_cache_metrics(state.response_cache, REQUEST_STEP)
    if not state.shows_exact_metrics:
        metrics = [one.coarse(state.coarse_numbers) for one in metrics]
    text = "".join(f"{line}\n" for one in metrics for line in one.lines(state.model_name))
    return Response(text, media_type=CONTENT_TYPE)


def engine_metrics(engine: Engine) -> list[Metric]:
    scheduler, pool = engine.scheduler, engine.scheduler.pool
    pages = pool.num_pages // PAGES_SHOWN_AS
    metrics = [
        gauge(
            "requests_running",
            "Requests that have pages.",
            len(scheduler.running),
            aliases=vllm("num_requests_running"),
        ),
        gauge(
            "requests_waiting",
            "Requests that wait to run.",
            scheduler.num_waiting,
            aliases=vllm("num_requests_waiting"),
        ),
        gauge("pages", "Pages of keys and values there are.", pool.num_pages),
        gauge(
            "pages_used",
            "Pages that requests hold.",
            pool.num_pages - pool.num_free,
            pages,
            vllm("kv_cache_usage_perc", "gpu_cache_usage_perc", values=_share_of(pool.num_pages)),
        ),
        gauge("pages_idle", "Pages that nobody holds, tokens kept.", pool.num_idle, pages),
        counter(
            "preemptions",
            "Requests sent back to the queue.",
            scheduler.num_preemptions,
            aliases=vllm("num_preemptions_total"),
        ),
    ]
    metrics += prefix_metrics(engine)
    if engine.speculator is not None:
        metrics += speculation_metrics(engine.speculator.stats)
    return metrics


def prefix_metrics(engine: Engine) -> list[Metric]:
    """Returns the metrics of the prefix cache; vLLM's count tokens."""
    scheduler, cache = engine.scheduler, engine.scheduler.cache.stats
    tokens = CONTEXTS_PER_STEP * scheduler.max_tokens_per_request
    pages = scheduler.pool.num_pages // PAGES_SHOWN_AS
    return [
        counter(f"prefix_cache_{name}", help, value, step, aliases)
        for name, help, value, step, aliases in (
            ("queries", "Requests that looked for a prefix.", cache.num_queries, REQUEST_STEP, ()),
            ("hits", "Requests that found one.", cache.num_hits, REQUEST_STEP, ()),
            (
                "query_tokens",
                "Tokens looked for.",
                cache.num_queried_tokens,
                tokens,
                vllm("prefix_cache_queries_total"),
            ),
            (
                "hit_tokens",
                "Tokens found.",
                cache.num_hit_tokens,
                tokens,
                vllm("prefix_cache_hits_total"),
            ),
            ("evictions", "Pages whose tokens were dropped.", cache.num_evictions, pages, ()),
        )
    ]


def speculation_metrics(stats: SpeculationStats) -> list[Metric]:
    """Returns the metrics of speculation; a draft's first token is at position 1."""
    proposed, accepted = stats.num_proposed, stats.num_accepted
    return [
        counter("speculation_steps", "Steps that gave tokens.", stats.num_steps, DRAFT_STEP),
        counter("speculation_tokens", "Tokens that they gave.", stats.num_tokens, DRAFT_STEP),
        _by_position(
            "proposed",
            "Draft tokens by their position in a draft.",
            proposed,
            vllm("spec_decode_num_draft_tokens_total", values=total)
            + vllm("spec_decode_num_drafts_total", values=_first),
        ),
        _by_position(
            "accepted",
            "Draft tokens that came true, by their position.",
            accepted,
            vllm("spec_decode_num_accepted_tokens_total", values=total)
            + vllm("spec_decode_num_accepted_tokens_per_pos_total", values=_from_zero),
        ),
        counter("speculation_seconds", "Time that drafting took.", stats.drafting_s, 1),
        gauge(
            "speculation_failed", "1 when drafting failed and is off.", stats.failure is not None
        ),
    ]


def _by_position(name: str, help: str, counts: Sequence[int], aliases: tuple[Alias, ...]) -> Metric:
    return Metric(
        name=f"speculation_{name}_total",
        help=help,
        kind="counter",
        values={str(i): float(count) for i, count in enumerate(tuple(counts), 1)},
        label="position",
        step=DRAFT_STEP,
        aliases=aliases,
    )


def _share_of(most: int) -> Callable[[Values], Values]:
    return lambda values: {key: value / most for key, value in values.items()}


def _first(values: Values) -> Values:
    """Returns the value of the first position: each draft has one."""
    return {"": values.get("1", 0.0)}


def _from_zero(values: Values) -> Values:
    """Returns the values by positions that begin at 0, as vLLM counts them."""
    return {str(int(key) - 1): value for key, value in values.items()}
