"""The metrics of the response cache."""

from paredown.serve.answers.response_cache import ResponseCache
from paredown.serve.watch.metric import Metric, counter, gauge


def response_cache_metrics(cache: ResponseCache, request_step: int) -> list[Metric]:
    """Returns counters whose quotient, hits per request, is what `paredown plan --cache-hit`
    takes. They are shown in steps, so that no client sees whether another asked before."""
    return [
        counter(
            "response_cache_requests",
            "Requests that could have had an answer from the response cache, and others.",
            cache.num_requests,
            request_step,
        ),
        counter(
            "response_cache_hits",
            "Requests answered from the response cache.",
            cache.num_hits,
            request_step,
        ),
        gauge(
            "response_cache_entries",
            "Requests whose answers are kept.",
            cache.num_kept,
            request_step,
        ),
        gauge(
            "response_cache_bytes",
            "Memory of kept answers.",
            cache.num_bytes,
            max(cache.max_bytes // 8, 1),
        ),
    ]
