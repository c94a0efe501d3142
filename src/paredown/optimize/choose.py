"""Which candidate is written: the rule, in one place.

Of the candidates whose perplexity is at most (1 + max_quality_loss) times the reference's, those
that decode at least 95 % as fast as the fastest of them are taken for equally fast (runs differ by
about as much); of these the smallest file is chosen, then the lower perplexity, then the faster.
The choice is always on the Pareto front.
"""

from collections.abc import Sequence

from paredown.errors import ConfigError
from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.front import point_of

DEFAULT_MAX_QUALITY_LOSS = 0.01
EQUALLY_FAST = 0.95


def quality_loss(perplexity: float, reference_perplexity: float) -> float:
    """Relative increase of perplexity: 0.01 is 1 % more than the reference."""
    return perplexity / reference_perplexity - 1


def choose(
    candidates: Sequence[Measurement], reference_perplexity: float, max_quality_loss: float
) -> Measurement | None:
    """The candidate by the rule above, None when all lose more."""
    limit = reference_perplexity * (1 + max_quality_loss)
    good = [one for one in candidates if point_of(one).perplexity <= limit]
    if not good:
        return None
    fastest = max(point_of(one).decode_tokens_per_s for one in good)
    fast = [one for one in good if point_of(one).decode_tokens_per_s >= EQUALLY_FAST * fastest]
    return min(fast, key=_preference)


def parse_quality_loss(text: str) -> float:
    """'1%' or '0.01' to 0.01. Raises ConfigError."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(
            "--max-quality-loss is not a share", seen=text, remedy="Give one such as 1% or 0.01."
        )
    return value


def _preference(one: Measurement) -> tuple[float, float, float]:
    point = point_of(one)
    return point.file_bytes, point.perplexity, -point.decode_tokens_per_s
