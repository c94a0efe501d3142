"""Break-even points: the batch at which 4-bit weights stop paying, and what speculation gains."""

from dataclasses import dataclass

from paredown.cost.step_cost import StepCost, StepLoad, chunk_kv_tokens, chunk_pairs, decode_load
from paredown.spec.model import ModelSpec

# A smaller gain counts as no gain.
_LEAST_GAIN = 1.05
MAX_BATCH = 4096
MAX_DRAFT_TOKENS = 16
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def break_even_batch(narrow: StepCost, wide: StepCost, context: int, spec: ModelSpec) -> int | None:
    """Returns the smallest batch whose decode step is less than 5 % faster with the narrow weights
    than with the wide ones. From there on arithmetic binds, not memory. None means that it lies
    beyond `MAX_BATCH`."""

    def pays(batch: int) -> bool:
        load = decode_load(batch, context, spec.windows)
        return wide.step_s(load) >= _LEAST_GAIN * narrow.step_s(load)

    low, high = 0, 1
    while pays(high):
        low, high = high, 2 * high
        if high > MAX_BATCH:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    return high


@dataclass(frozen=True, kw_only=True)
class SpeculationGain:
    """The gain from drafting `num_draft_tokens` for each sequence; 0 tokens where no number
    gains."""

    batch: int
    num_draft_tokens: int
    gain: float


def best_speculation(
    cost: StepCost, spec: ModelSpec, *, batch: int, context: int, acceptance: float
) -> SpeculationGain:
    """Returns the number of draft tokens that gives the most tokens per second.

    Each draft token is taken to be right with probability `acceptance`, and drafting to cost
    nothing (n-grams, suffixes). A step then gives (1 - a^(k+1)) / (1 - a) tokens (Leviathan et
    al., arXiv 2211.17192, equation 1).
    """
    plain_s = cost.step_s(decode_load(batch, context, spec.windows))
    best = SpeculationGain(batch=batch, num_draft_tokens=0, gain=1.0)
    for num_draft in range(1, MAX_DRAFT_TOKENS + 1):
        seconds = cost.step_s(verify_load(batch, context, num_draft, spec.windows))
        tokens = sum(acceptance**i for i in range(num_draft + 1))
        gain = tokens * plain_s / seconds
        if gain > best.gain:
            best = SpeculationGain(batch=batch, num_draft_tokens=num_draft, gain=gain)
    return best


def verify_load(batch: int, context: int, num_draft: int, windows: tuple[int, ...]) -> StepLoad:
    """Returns the load of a step that verifies `num_draft` draft tokens of each sequence, with a
    row of logits after each token."""
    length, start = num_draft + 1, context - 1
    return StepLoad(
        num_tokens=batch * length,
        num_logits=batch * length,
        num_requests=batch,
        attention_pairs=batch * chunk_pairs(start, length),
        kv_tokens_read=batch * chunk_kv_tokens(start, length),
        windowed_pairs=tuple(batch * chunk_pairs(start, length, one) for one in windows),
        windowed_kv_tokens_read=tuple(
            batch * chunk_kv_tokens(start, length, one) for one in windows
        ),
    )
