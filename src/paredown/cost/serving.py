"""Predicts how a model serves: time to the first token, time per output token, throughput."""

from dataclasses import dataclass, replace

from paredown.cost.step_cost import (
    StepCost,
    StepLoad,
    decode_load,
    encoded_prompts_load,
    prefill_load,
    reading_across,
)
from paredown.errors import ConfigError
from paredown.spec.model import ModelSpec

# The default of ScheduleConfig.
MAX_STEP_TOKENS = 512
# Far more than anybody has: a larger number is a typing error.
_MAX_COUNT = 10**9


@dataclass(frozen=True, kw_only=True)
class BatchLoad:
    """`batch` sequences at once, each with a prompt of `prompt_tokens` and `context` tokens during
    decode."""

    batch: int = 1
    prompt_tokens: int = 512
    context: int = 1024

    def __post_init__(self) -> None:
        for name in ("batch", "prompt_tokens", "context"):
            value = getattr(self, name)
            if not 1 <= value <= _MAX_COUNT:
                raise ConfigError(
                    f"--{name.replace('_', '-')} is out of range",
                    seen=value,
                    remedy=f"Use 1 to {_MAX_COUNT:,}.",
                )

    def check(self, spec: ModelSpec) -> None:
        """Raises ConfigError for a length beyond the model's positions."""
        for name in ("prompt_tokens", "context"):
            value = getattr(self, name)
            if value > spec.max_positions:
                raise ConfigError(
                    f"--{name.replace('_', '-')} is more than the model's context",
                    seen=f"{value:,} tokens, {spec.max_positions:,} positions",
                    remedy=f"Use at most {spec.max_positions}.",
                )


@dataclass(frozen=True, kw_only=True)
class ServingTimes:
    """`ttft_s` is the time of a lone prompt, cut into chunks as the engine does. `tpot_s` is the
    time of a step that gives every sequence of the batch a token."""

    ttft_s: float
    tpot_s: float
    decode_tokens_per_s: float
    prefill_tokens_per_s: float


def serving_times(
    cost: StepCost, batch_load: BatchLoad, spec: ModelSpec, max_step_tokens: int = MAX_STEP_TOKENS
) -> ServingTimes:
    first_s = ttft_s(cost, spec, batch_load.prompt_tokens, max_step_tokens=max_step_tokens)
    each_s = cost.step_s(answers_load(spec, batch_load))
    return ServingTimes(
        ttft_s=first_s,
        tpot_s=each_s,
        decode_tokens_per_s=batch_load.batch / each_s,
        prefill_tokens_per_s=batch_load.prompt_tokens / first_s,
    )


def answers_load(spec: ModelSpec, batch_load: BatchLoad) -> StepLoad:
    """Returns the load of a step that gives every sequence of the batch a token."""
    if spec.encoder is None:
        return decode_load(batch_load.batch, batch_load.context, spec.windows)
    own_tokens = max(1, batch_load.context - batch_load.prompt_tokens)
    return reading_across(decode_load(batch_load.batch, own_tokens), batch_load.prompt_tokens)


def prompt_steps(
    spec: ModelSpec, num_tokens: int, max_step_tokens: int = MAX_STEP_TOKENS
) -> list[StepLoad]:
    """Returns the steps of a prompt that is alone in the engine; the last one has the row of
    logits. An encoder reads it in one step."""
    if spec.encoder is not None:
        return [encoded_prompts_load(1, num_tokens)]
    steps = []
    for start in range(0, num_tokens, max_step_tokens):
        length = min(max_step_tokens, num_tokens - start)
        load = prefill_load(length, start, spec.windows)
        is_last = start + length == num_tokens
        steps.append(load if is_last else replace(load, num_logits=0, num_first_tokens=0))
    return steps


def ttft_s(
    cost: StepCost, spec: ModelSpec, num_tokens: int, *, max_step_tokens: int = MAX_STEP_TOKENS
) -> float:
    return sum(cost.step_s(load) for load in prompt_steps(spec, num_tokens, max_step_tokens))
