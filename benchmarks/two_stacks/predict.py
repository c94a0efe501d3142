"""The cost model's seconds for the same answers."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.two_stacks.run import Load
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.serving import MAX_STEP_TOKENS, prompt_steps
from paredown.cost.step_cost import decode_load, encoded_prompts_load, reading_across

# A buffer that is read this much faster than memory lies in a cache.
_CACHED = 1.1


def predicted_seconds(cost: PredictedStep, load: Load, outputs: Sequence[int]) -> dict[int, float]:
    """Returns when every request has so many tokens, for each of `outputs`."""
    is_across = cost.spec.encoder is not None
    now_s = _first_tokens_s(cost, load)
    found = {}
    for num_tokens in range(1, max(outputs) + 1):
        if num_tokens > 1:
            own = num_tokens if is_across else load.prompt_tokens + num_tokens - 1
            step = decode_load(load.batch, own, cost.spec.windows)
            now_s += cost.step_s(reading_across(step, load.prompt_tokens) if is_across else step)
        if num_tokens in outputs:
            found[num_tokens] = now_s
    return found


def at_bandwidth(cost: PredictedStep, bytes_per_s: float) -> PredictedStep:
    """Returns the cost on the machine while its memory is read at that rate: shared memory changes
    from minute to minute, caches do not."""
    fit = cost.fit
    _, memory = fit.bandwidths[-1]
    bandwidths = tuple(
        (size, rate if rate > _CACHED * memory else rate * bytes_per_s / memory)
        for size, rate in fit.bandwidths
    )
    return replace(cost, fit=replace(fit, bandwidths=bandwidths))


def _first_tokens_s(cost: PredictedStep, load: Load) -> float:
    """Returns when every request has its first token, in steps of at most MAX_STEP_TOKENS; an
    encoder's prompt is never cut. Tokens of those that started first are left out."""
    if cost.spec.encoder is None:
        if load.batch * load.prompt_tokens <= MAX_STEP_TOKENS:
            return sum(
                cost.step_s(step)
                for step in prompt_steps(cost.spec, load.batch * load.prompt_tokens)
            )
        steps = prompt_steps(cost.spec, load.prompt_tokens)
        return load.batch * sum(map(cost.step_s, steps))
    each = max(1, MAX_STEP_TOKENS // (load.prompt_tokens + 1))
    whole, rest = divmod(load.batch, each)
    sizes = [each] * whole + ([rest] if rest else [])
    return sum(cost.step_s(encoded_prompts_load(size, load.prompt_tokens)) for size in sizes)
