"""Bounds: a user's limits on a candidate's loss, size, speed and memory, and its distance from
them."""

from dataclasses import dataclass

from paredown.errors import ConfigError
from paredown.evaluate.quality.measurement import Measurement
from paredown.units import MEGA

DEFAULT_MAX_QUALITY_LOSS = 0.01
DEFAULT_PROMPT_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A bound and a candidate's value. `excess` is the value over the limit, or the limit over the
    value where more is better; it meets the bound if it is at most 1."""

    bound: str
    seen: float
    limit: float
    excess: float


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits on a candidate; None means no limit.

    `max_quality_loss`   relative increase of perplexity
    `max_kl`             KL divergence to the original, nats per token
    `max_mb`             megabytes of the folder's weights
    `min_decode`         tokens per second of one sequence
    `max_first_token_s`  seconds to read a prompt of `prompt_tokens`
    `max_memory_mb`      megabytes of the loaded weights, and of the keys and values of
                         `num_sequences` sequences of `prompt_tokens` tokens
    """

    max_quality_loss: float | None = None
    max_kl: float | None = None
    max_mb: float | None = None
    min_decode: float | None = None
    max_first_token_s: float | None = None
    max_memory_mb: float | None = None
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS
    num_sequences: int = 1

    def __post_init__(self) -> None:
        for option, value, least in (
            ("--max-kl", self.max_kl, 0.0),
            ("--max-mb", self.max_mb, 0.0),
            ("--min-decode", self.min_decode, 0.0),
            ("--max-first-token-s", self.max_first_token_s, 0.0),
            ("--max-memory-mb", self.max_memory_mb, 0.0),
            ("--prompt-tokens", self.prompt_tokens, 1),
            ("--sequences", self.num_sequences, 1),
        ):
            if value is not None and not least <= value < float("inf"):
                raise ConfigError(
                    f"{option} is out of range", seen=value, remedy=f"Give at least {least:g}."
                )

    @property
    def has_resources(self) -> bool:
        """Whether size, speed or memory is bounded; the search is then for the best quality."""
        return any(
            limit is not None
            for limit in (self.max_mb, self.min_decode, self.max_first_token_s, self.max_memory_mb)
        )

    def gaps(self, one: Measurement, reference: Measurement) -> tuple[Gap, ...]:
        """Compares the candidate with each bound."""
        assert one.perplexity is not None
        assert reference.perplexity is not None
        upper = (
            (
                "--max-quality-loss",
                one.perplexity / reference.perplexity - 1,
                self.max_quality_loss,
            ),
            ("--max-kl", one.kl_divergence, self.max_kl),
            ("--max-mb", one.file_bytes / MEGA, self.max_mb),
            ("--max-first-token-s", one.first_token_s, self.max_first_token_s),
            ("--max-memory-mb", _mega(one.memory_bytes), self.max_memory_mb),
        )
        found = [
            Gap(bound=bound, seen=seen, limit=limit, excess=_over(seen, limit))
            for bound, seen, limit in upper
            if limit is not None and seen is not None
        ]
        rate = one.decode_tokens_per_s
        if self.min_decode is not None and rate is not None:
            excess = _over(self.min_decode, rate)
            found.append(Gap(bound="--min-decode", seen=rate, limit=self.min_decode, excess=excess))
        return tuple(found)


def within_default(bounds: Bounds) -> Bounds:
    """Returns the bounds, with the default loss if they bound nothing at all."""
    if bounds.has_resources or bounds.max_kl is not None or bounds.max_quality_loss is not None:
        return bounds
    return Bounds(
        max_quality_loss=DEFAULT_MAX_QUALITY_LOSS,
        prompt_tokens=bounds.prompt_tokens,
        num_sequences=bounds.num_sequences,
    )


def _over(seen: float, limit: float) -> float:
    if seen <= limit:
        return min(1.0, max(0.0, seen / limit)) if limit > 0 else 1.0
    return seen / limit if limit > 0 else float("inf")


def _mega(num_bytes: int | None) -> float | None:
    return None if num_bytes is None else num_bytes / MEGA
