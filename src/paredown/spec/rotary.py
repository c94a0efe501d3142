"""Rotary: positions as angles by which queries and keys are rotated."""

import math
from dataclasses import dataclass
from typing import Literal

RotaryScaling = Literal["none", "linear", "llama3", "yarn", "longrope"]


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions (RoFormer, arXiv 2104.09864) in the rotate-half form.

    `share`       the part of a head's columns, from the first on, that is rotated (GPT-NeoX: a
                  quarter)
    `attention_factor`                     multiplies cosines and sines
    `beta_fast`, `beta_slow`, `truncate`   for YaRN (arXiv 2309.00071). A frequency with more than
                  `beta_fast` turns within `original_max_positions` is kept; one with fewer than
                  `beta_slow` turns is divided by `factor`. `truncate` rounds the bounds of the
                  ramp between them to whole columns
    `short_factors`, `long_factors`        for LongRoPE (arXiv 2402.13753): the divisors of the
                  frequencies in texts of up to `original_max_positions` tokens, and in longer ones
    """

    theta: float
    scaling: RotaryScaling = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192
    share: float = 1.0
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()

    @property
    def switch_tokens(self) -> int | None:
        """The text length in tokens above which other frequencies apply, or None."""
        is_switched = self.scaling == "longrope" and self.short_factors != self.long_factors
        return self.original_max_positions if is_switched else None

    def rotated_columns(self, head_dim: int) -> int:
        """Returns how many columns of a head are rotated, rounded as Transformers does."""
        return int(head_dim * self.share)

    def inverse_frequencies(self, head_dim: int, num_tokens: int = 0) -> list[float]:
        """Returns the angle per position for each pair of rotated columns, after scaling, in a
        text of `num_tokens`."""
        num_columns = self.rotated_columns(head_dim)
        plain = [self.theta ** (-2 * i / num_columns) for i in range(num_columns // 2)]
        if self.scaling == "linear":
            return [frequency / self.factor for frequency in plain]
        if self.scaling == "llama3":
            return [self._llama3(frequency) for frequency in plain]
        if self.scaling == "yarn":
            return self._yarn(plain, num_columns)
        if self.scaling == "longrope":
            is_long = num_tokens > self.original_max_positions
            factors = self.long_factors if is_long else self.short_factors
            return [frequency / by for frequency, by in zip(plain, factors, strict=True)]
        return plain

    def _llama3(self, frequency: float) -> float:
        """Applies Llama 3.1's rule: divides low frequencies by `factor`, keeps high ones, with a
        ramp between."""
        wavelength = 2 * math.pi / frequency
        if wavelength < self.original_max_positions / self.high_freq_factor:
            return frequency
        if wavelength > self.original_max_positions / self.low_freq_factor:
            return frequency / self.factor
        smooth = (self.original_max_positions / wavelength - self.low_freq_factor) / (
            self.high_freq_factor - self.low_freq_factor
        )
        return (1 - smooth) * frequency / self.factor + smooth * frequency

    def _yarn(self, plain: list[float], num_columns: int) -> list[float]:
        """Applies YaRN, section 3.2: keeps high frequencies, divides low ones by `factor`, with a
        ramp over the pairs between."""
        low = self._pair_of_turns(self.beta_fast, num_columns)
        high = self._pair_of_turns(self.beta_slow, num_columns)
        if self.truncate:
            low, high = float(math.floor(low)), float(math.ceil(high))
        low, high = max(low, 0.0), min(high, num_columns - 1.0)
        width = high - low if high != low else 0.001
        found = []
        for pair, frequency in enumerate(plain):
            slow_share = min(max((pair - low) / width, 0.0), 1.0)
            found.append(frequency * (1 - slow_share) + frequency / self.factor * slow_share)
        return found

    def _pair_of_turns(self, num_turns: float, num_columns: int) -> float:
        """Returns the pair of columns, not rounded, that turns `num_turns` times in the original
        context."""
        wavelength = self.original_max_positions / (num_turns * 2 * math.pi)
        return num_columns * math.log(wavelength) / (2 * math.log(self.theta))
