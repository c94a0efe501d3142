"""The metrics of an encoder's worker."""

from paredown.engine.encode.encoder_worker import EncoderWorker
from paredown.serve.watch.metric import Metric, counter, gauge


def encoder_metrics(worker: EncoderWorker) -> list[Metric]:
    """Returns counters of what was encoded, and gauges of what waits."""
    stats = worker.stats
    return [
        gauge("texts_waiting", "Texts that wait or are encoded.", worker.num_waiting_texts),
        gauge("text_tokens_waiting", "Their tokens.", worker.num_waiting_tokens),
        counter("encoder_requests", "Requests answered.", stats.num_requests),
        counter("encoder_texts", "Texts encoded.", stats.num_texts),
        counter("encoder_tokens", "Their tokens.", stats.num_tokens),
        counter("encoder_batches", "Batches they were encoded in.", stats.num_batches),
        counter("encoder_seconds", "Time that the batches took.", stats.busy_s),
    ]
