"""The metrics of answers: how long they took, how long they were, and how they ended."""

from paredown.serve.watch.answer_stats import AnswerStats
from paredown.serve.watch.histogram import Histogram
from paredown.serve.watch.histogram_metric import HistogramMetric
from paredown.serve.watch.metric import Alias, Metric, Values, counter, vllm

# A request, or so many tokens of its answer, shows with a chance of one in this many.
REQUEST_STEP = 64
TOKEN_STEP = 4096
# vLLM's words for how an answer ended.
_REASONS = {"cancelled": "abort"}


def answer_metrics(stats: AnswerStats) -> list[Metric | HistogramMetric]:
    """Returns histograms of times and tokens, and counters."""
    reasons = ("stop", "length", "cancelled", "error")
    return [
        counter(
            "prompt_tokens",
            "Tokens of prompts; each prompt counts once.",
            stats.num_prompt_tokens,
            aliases=vllm("prompt_tokens_total"),
        ),
        counter(
            "generated_tokens",
            "Tokens of answers.",
            stats.num_generated_tokens,
            aliases=vllm("generation_tokens_total"),
        ),
        Metric(
            name="answers_total",
            help="Answers that ended, by how.",
            kind="counter",
            values={reason: float(stats.num_by_reason[reason]) for reason in reasons},
            label="finish_reason",
            aliases=(
                Alias(name="request_success_total", values=_by_reason, label="finished_reason"),
            ),
        ),
        *(
            HistogramMetric.of(histogram, name, help, step, vllm(*aliases))
            for name, help, histogram, step, aliases in (*_times(stats), *_lengths(stats))
        ),
    ]


def _by_reason(values: Values) -> Values:
    return {_REASONS.get(reason, reason): value for reason, value in values.items()}


_Row = tuple[str, str, Histogram, int, tuple[str, ...]]


def _times(stats: AnswerStats) -> tuple[_Row, ...]:
    """Returns each histogram of seconds with its name, its meaning, its step and vLLM's names, old
    ones included."""
    return (
        (
            "inter_token_seconds",
            "Between the tokens of an answer.",
            stats.inter_token_s,
            TOKEN_STEP,
            ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        ),
        *(
            (f"{name}_seconds", help, histogram, REQUEST_STEP, (f"{alias}_seconds",))
            for name, help, histogram, alias in (
                (
                    "time_to_first_token",
                    "Arrival to first token.",
                    stats.first_token_s,
                    "time_to_first_token",
                ),
                (
                    "mean_token",
                    "Mean time of the tokens after the first, once for each answer.",
                    stats.mean_token_s,
                    "request_time_per_output_token",
                ),
                ("answer", "Arrival to last token.", stats.answer_s, "e2e_request_latency"),
                ("queue", "Arrival to first step.", stats.queue_s, "request_queue_time"),
                ("prefill", "First step to first token.", stats.prefill_s, "request_prefill_time"),
                ("decode", "First token to last token.", stats.decode_s, "request_decode_time"),
                ("running", "First step to last token.", stats.running_s, "request_inference_time"),
            )
        ),
    )


def _lengths(stats: AnswerStats) -> tuple[_Row, ...]:
    """Returns the same of histograms of tokens, which are exact."""
    return (
        (
            "prompt_length_tokens",
            "Tokens of a prompt.",
            stats.prompt_tokens,
            0,
            ("request_prompt_tokens",),
        ),
        (
            "answer_length_tokens",
            "Tokens of an answer.",
            stats.generated_tokens,
            0,
            ("request_generation_tokens", "request_max_num_generation_tokens"),
        ),
    )
