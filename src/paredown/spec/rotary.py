"""Rotary: positions as angles by which queries and keys are turned."""

import math
from dataclasses import dataclass
from typing import Literal

RotaryScaling = Literal["none", "linear", "llama3"]


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions (RoFormer, arXiv 2104.09864), rotate-half form. `share` is the part of a
    head that is turned, its first columns (GPT-NeoX: a quarter); the others stay as they are."""

    theta: float
    scaling: RotaryScaling = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192
    share: float = 1.0

    def rotated_columns(self, head_dim: int) -> int:
        """The columns of a head that are turned, as Transformers rounds them."""
        return int(head_dim * self.share)

    def inverse_frequencies(self, head_dim: int) -> list[float]:
        """Angles per position step, after the scaling rule: one for two columns that are turned."""
        num_columns = self.rotated_columns(head_dim)
        plain = [self.theta ** (-2 * i / num_columns) for i in range(num_columns // 2)]
        if self.scaling == "linear":
            return [frequency / self.factor for frequency in plain]
        if self.scaling == "llama3":
            return [self._llama3(frequency) for frequency in plain]
        return plain

    def _llama3(self, frequency: float) -> float:
        """Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, a ramp between"""
        wavelength = 2 * math.pi / frequency
        if wavelength < self.original_max_positions / self.high_freq_factor:
            return frequency
        if wavelength > self.original_max_positions / self.low_freq_factor:
            return frequency / self.factor
        smooth = (self.original_max_positions / wavelength - self.low_freq_factor) / (
            self.high_freq_factor - self.low_freq_factor
        )
        return (1 - smooth) * frequency / self.factor + smooth * frequency
