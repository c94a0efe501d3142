"""ModelSpec: everything that must be known of a decoder-only transformer to run it, and no weights.

Both executors are driven by it; a new family is a new way to fill it, not new code that runs.
"""

import math
from dataclasses import dataclass
from typing import Literal

NormKind = Literal["rms", "layer"]
Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]
RotaryScaling = Literal["none", "linear", "llama3"]


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions (RoFormer, arXiv 2104.09864), rotate-half form over the whole head."""

    theta: float
    scaling: RotaryScaling = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192

    def inverse_frequencies(self, head_dim: int) -> list[float]:
        """`head_dim // 2` angles per position step, after the scaling rule."""
        plain = [self.theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
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


@dataclass(frozen=True, kw_only=True)
class LearnedPositions:
    """Position vectors added to the embedding: row `position + offset` of a table (OPT: 2)."""

    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A pre-norm decoder: embedding, `num_layers` of (attention, mlp), final norm, output layer."""

    family: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_positions: int
    positions: Rotary | LearnedPositions
    norm: NormKind
    norm_eps: float
    activation: Activation
    gated: bool
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied_embeddings: bool = False
    sliding_window: int | None = None

    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """(out, in) of each linear layer of one transformer layer, by role."""
        q_size = self.num_heads * self.head_dim
        kv_size = self.num_kv_heads * self.head_dim
        shapes = {
            "q": (q_size, self.hidden_size),
            "k": (kv_size, self.hidden_size),
            "v": (kv_size, self.hidden_size),
            "o": (self.hidden_size, q_size),
            "up": (self.intermediate_size, self.hidden_size),
            "down": (self.hidden_size, self.intermediate_size),
        }
        if self.gated:
            shapes["gate"] = (self.intermediate_size, self.hidden_size)
        return shapes

    def num_linear_parameters(self) -> int:
        """Weights of the linear layers inside the transformer layers (no embedding, no output)."""
        return self.num_layers * sum(o * i for o, i in self.linear_shapes().values())

    def num_parameters(self) -> int:
        """All weights, biases and norms; a tied output layer counts once."""
        h = self.hidden_size
        total = self.num_linear_parameters() + self.vocab_size * h
        if not self.tied_embeddings:
            total += self.vocab_size * h
        if isinstance(self.positions, LearnedPositions):
            total += (self.max_positions + self.positions.offset) * h
        per_norm = h * (2 if self.norm == "layer" else 1)
        total += per_norm * (2 * self.num_layers + 1)
        return total + self.num_layers * self._num_layer_extras()

    def _num_layer_extras(self) -> int:
        shapes = self.linear_shapes()
        extras = 2 * self.head_dim if self.qk_norm else 0
        if self.qkv_bias:
            extras += sum(shapes[role][0] for role in ("q", "k", "v"))
        if self.attention_out_bias:
            extras += shapes["o"][0]
        if self.mlp_bias:
            extras += sum(shapes[role][0] for role in ("gate", "up", "down") if role in shapes)
        return extras
