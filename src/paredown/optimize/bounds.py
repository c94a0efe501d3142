"""Bounds: a user's limits on a candidate's loss, size, speed and memory, and its distance from
them."""

from dataclasses import dataclass, replace

from paredown.errors import ConfigError
from paredown.evaluate.quality.measurement import Measurement
from paredown.units import MEGA

DEFAULT_MAX_QUALITY_LOSS = 0.01
DEFAULT_MIN_COSINE = 0.99
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
    `min_cosine`         mean cosine of an encoder's vectors to the original's
    `min_texts_per_s`    texts per second of an encoder
    """

    max_quality_loss: float | None = None
    max_kl: float | None = None
    max_mb: float | None = None
    min_decode: float | None = None
    max_first_token_s: float | None = None
    max_memory_mb: float | None = None
    min_cosine: float | None = None
    min_texts_per_s: float | None = None
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS
    num_sequences: int = 1

    def __post_init__(self) -> None:
        for option, value, least in (
            ("--max-kl", self.max_kl, 0.0),
            ("--max-mb", self.max_mb, 0.0),
            ("--min-decode", self.min_decode, 0.0),
            ("--max-first-token-s", self.max_first_token_s, 0.0),
            ("--max-memory-mb", self.max_memory_mb, 0.0),
            ("--min-cosine", self.min_cosine, -1.0),
            ("--min-texts", self.min_texts_per_s, 0.0),
            ("--prompt-tokens", self.prompt_tokens, 1),
            ("--sequences", self.num_sequences, 1),
        ):
            if value is not None and not least <= value < float("inf"):
                raise ConfigError(
                    f"{option} is out of range", seen=value, remedy=f"Give at least {least:g}."
                )
        if self.min_cosine is not None and self.min_cosine >= 1:
            raise ConfigError(
                "--min-cosine is out of range",
                seen=self.min_cosine,
                remedy="Give less than 1, which only the same numbers reach: 0.999.",
            )

    @property
    def has_resources(self) -> bool:
        """Whether size, speed or memory is bounded; the search is then for the best quality."""
        return any(
            limit is not None
            for limit in (
                self.max_mb,
                self.min_decode,
                self.max_first_token_s,
                self.max_memory_mb,
                self.min_texts_per_s,
            )
        )

    def check_kind(self, *, generates: bool) -> None:
        """Raises ConfigError for a bound that only the other kind of model has."""
        of_decoders = (
            ("--max-quality-loss", self.max_quality_loss),
            ("--max-kl", self.max_kl),
            ("--min-decode", self.min_decode),
            ("--max-first-token-s", self.max_first_token_s),
            ("--max-memory-mb", self.max_memory_mb),
        )
        of_encoders = (("--min-cosine", self.min_cosine), ("--min-texts", self.min_texts_per_s))
        own, other = (of_decoders, of_encoders) if generates else (of_encoders, of_decoders)
        for option, value in other:
            if value is None:
                continue
            what = "a model that generates" if generates else "an encoder"
            raise ConfigError(
                f"{what} has no such bound",
                seen=f"{option} {value:g}",
                remedy=f"Use --max-mb, {', '.join(name for name, _ in own)}.",
            )

    def gaps(self, one: Measurement, reference: Measurement) -> tuple[Gap, ...]:
        """Compares the candidate with each bound."""
        loss = None
        if one.perplexity is not None and reference.perplexity is not None:
            loss = one.perplexity / reference.perplexity - 1
        upper = (
            ("--max-quality-loss", loss, self.max_quality_loss),
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
        lower = (
            ("--min-decode", one.decode_tokens_per_s, self.min_decode),
            ("--min-texts", one.texts_per_s, self.min_texts_per_s),
        )
        found += [
            Gap(bound=bound, seen=seen, limit=limit, excess=_over(limit, seen))
            for bound, seen, limit in lower
            if limit is not None and seen is not None
        ]
        if self.min_cosine is not None and one.cosine_mean is not None:
            # By how much more the cosine lacks of 1.
            excess = _over(1 - one.cosine_mean, 1 - self.min_cosine)
            seen, limit = one.cosine_mean, self.min_cosine
            found.append(Gap(bound="--min-cosine", seen=seen, limit=limit, excess=excess))
        return tuple(found)


def within_default(bounds: Bounds, *, generates: bool = True) -> Bounds:
    """Returns the bounds, with the default loss if they bound nothing at all."""
    quality = (bounds.max_kl, bounds.max_quality_loss, bounds.min_cosine)
    if bounds.has_resources or any(limit is not None for limit in quality):
        return bounds
    if not generates:
        return replace(bounds, min_cosine=DEFAULT_MIN_COSINE)
    return replace(bounds, max_quality_loss=DEFAULT_MAX_QUALITY_LOSS)


def _over(seen: float, limit: float) -> float:
    if seen <= limit:
        return min(1.0, max(0.0, seen / limit)) if limit > 0 else 1.0
    return seen / limit if limit > 0 else float("inf")


def _mega(num_bytes: int | None) -> float | None:
    return None if num_bytes is None else num_bytes / MEGA
