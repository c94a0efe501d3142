"""Lengths: the lengths of prompts and answers, random or fixed."""

import math
import random
import re
from dataclasses import dataclass

from paredown.errors import ConfigError
from paredown.shown import quoted

MAX_TOKENS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """A distribution of token counts. Without a `mean`, lengths are uniform from `low` to `high`,
    which are equal for a fixed length. With a `mean` they are log-normal with a standard deviation
    of `variation` means, cut off at `low` and `high`."""

    low: int
    high: int
    mean: float | None = None
    variation: float = 1.0

    def draw(self, rng: random.Random) -> int:
        if self.low == self.high:
            return self.low
        if self.mean is None:
            return self.low + int(rng.random() * (self.high - self.low + 1))
        variance = math.log1p(self.variation**2)
        value = math.exp(rng.gauss(math.log(self.mean) - variance / 2, math.sqrt(variance)))
        return min(max(round(value), self.low), self.high)

    @property
    def expected(self) -> float:
        """The mean, for a log-normal distribution before it is cut off."""
        return (self.low + self.high) / 2 if self.mean is None else self.mean

    @property
    def name(self) -> str:
        if self.mean is not None:
            return f"~{self.mean:g}"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


def parse_lengths(text: str, *, limit: int = MAX_TOKENS) -> Lengths:
    """Parses '512' (fixed), '100-900' (uniform) or '~512' (log-normal with that mean). No length
    exceeds `limit`. Raises ConfigError."""
    match = re.fullmatch(r"(~?)([0-9]{1,12})(?:-([0-9]{1,12}))?", text.strip())
    if match is not None and not (match[1] and match[3]):
        low = int(match[2])
        high = int(match[3] or low)
        if 1 <= low <= high <= MAX_TOKENS:
            if match[1]:
                return Lengths(low=1, high=max(limit, low), mean=low)
            return Lengths(low=low, high=high)
    raise ConfigError(
        "this is not a number of tokens",
        seen=quoted(text, 80),
        remedy="Write 512 (always), 100-900 (equally likely) or ~512 (log-normal with this mean); "
        f"from 1 to {MAX_TOKENS}.",
    )
