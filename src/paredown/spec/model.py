"""ModelSpec: everything that must be known of a decoder-only transformer to run it, and no weights.

Both executors are driven by it; a new family is a new way to fill it, not new code that runs.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from paredown.errors import ConfigError, UnsupportedError
from paredown.spec.attention_sinks import MAX_STREAMED_TOKENS, AttentionSinks
from paredown.spec.experts import SHARED, Experts, expert_owner

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
    """A pre-norm decoder: embedding, `num_layers` of (attention, mlp), final norm, output layer.

    `sliding_window`  a token sees so many tokens, itself among them, in all layers
    `full_layers`     but those of these numbers, where it sees all before it
    `sinks`           how the model is run on texts of any length; no property of a checkpoint
    """

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
    full_layers: tuple[int, ...] = ()
    sinks: AttentionSinks | None = None
    experts: Experts | None = None

    def layer_window(self, layer: int) -> int | None:
        """How many tokens one sees in a layer, sinks apart; None: all before it."""
        if self.sinks is not None:
            return self.sinks.window
        return None if layer in self.full_layers else self.sliding_window

    @property
    def attended_window(self) -> int | None:
        """How many tokens one sees in layers that have a window, sinks among them; None: no layer
        has any."""
        return self.sliding_window if self.sinks is None else self.sinks.num_kept_tokens

    @property
    def kept_window(self) -> int | None:
        """Tokens whose keys and values some layer still sees, sinks apart; None: all."""
        windows = [self.layer_window(layer) for layer in range(self.num_layers)]
        sizes = [window for window in windows if window is not None]
        return max(sizes) if len(sizes) == len(windows) else None

    @property
    def num_sink_tokens(self) -> int:
        return 0 if self.sinks is None else self.sinks.num_sink_tokens

    @property
    def max_request_tokens(self) -> int:
        """What the model takes as one text."""
        return self.max_positions if self.sinks is None else MAX_STREAMED_TOKENS

    def with_sinks(self, sinks: AttentionSinks | None) -> "ModelSpec":
        """To be run with attention sinks. Raises UnsupportedError for learned positions, which
        cannot be turned, and ConfigError where sinks and window are more than the model knows."""
        if sinks is None:
            return self
        if not isinstance(self.positions, Rotary):
            raise UnsupportedError(
                "attention sinks need rotary positions",
                seen=f"{self.family}, whose positions are learned",
                remedy="Run this model without --attention-sinks.",
            )
        limit = min(self.max_positions, self.sliding_window or self.max_positions)
        if sinks.num_kept_tokens > limit:
            raise ConfigError(
                "attention sinks and their window are longer than what the model was trained on",
                seen=f"{sinks.num_sink_tokens} + {sinks.window} tokens, {limit} positions",
                remedy=f"Use a window of at most {limit - sinks.num_sink_tokens} tokens.",
            )
        return replace(self, sinks=sinks)

    def has_experts(self, layer: int) -> bool:
        """Whether that layer has experts in the place of its MLP."""
        return self.experts is not None and self.experts.has_experts(layer)

    def linear_shapes(self, layer: int = 0) -> dict[str, tuple[int, int]]:
        """(out, in) of each linear layer of one transformer layer, by role. Without experts all
        layers are alike; with them, one with experts has those of every expert (spec/experts.py),
        and its router is none of them (`router_shapes`)."""
        attention = self.attention_shapes()
        if self.experts is None or not self.experts.has_experts(layer):
            return attention | self.mlp_shapes()
        return attention | self._expert_shapes(self.experts, range(self.experts.num))

    def active_shapes(self, layer: int = 0) -> dict[str, tuple[int, int]]:
        """The linear layers that one token passes, of the experts as many as it is sent to: the
        first ones stand for them."""
        if self.experts is None or not self.experts.has_experts(layer):
            return self.linear_shapes(layer)
        chosen = range(self.experts.num_per_token)
        return self.attention_shapes() | self._expert_shapes(self.experts, chosen)

    def router_shapes(self, layer: int) -> dict[str, tuple[int, int]]:
        """(out, in) of what decides how a token passes a layer with experts, never quantized:
        "router", and "shared_gate" of a shared expert."""
        if self.experts is None or not self.experts.has_experts(layer):
            return {}
        shapes = {"router": (self.experts.num, self.hidden_size)}
        if self.experts.shared_intermediate_size is not None:
            shapes["shared_gate"] = (1, self.hidden_size)
        return shapes

    def attention_shapes(self) -> dict[str, tuple[int, int]]:
        """(out, in) of q, k, v and o."""
        q_size = self.num_heads * self.head_dim
        kv_size = self.num_kv_heads * self.head_dim
        return {
            "q": (q_size, self.hidden_size),
            "k": (kv_size, self.hidden_size),
            "v": (kv_size, self.hidden_size),
            "o": (self.hidden_size, q_size),
        }

    def mlp_shapes(self, size: int | None = None, owner: str = "") -> dict[str, tuple[int, int]]:
        """(out, in) of the MLP's linear layers; `size` None is that of a dense layer. `owner` is
        the expert whose they are."""
        size = self.intermediate_size if size is None else size
        prefix = f"{owner}." if owner else ""
        shapes = {
            f"{prefix}up": (size, self.hidden_size),
            f"{prefix}down": (self.hidden_size, size),
        }
        if self.gated:
            shapes[f"{prefix}gate"] = (size, self.hidden_size)
        return shapes

    def num_linear_parameters(self) -> int:
        """Weights of the linear layers inside the transformer layers (no embedding, no output, no
        router)."""
        return self._num_weights(self.linear_shapes)

    def num_active_linear_parameters(self) -> int:
        """Of these the weights that one token is multiplied with."""
        return self._num_weights(self.active_shapes)

    def num_parameters(self) -> int:
        """All weights, biases and norms; a tied output layer counts once."""
        return self.num_linear_parameters() + self._num_other_parameters()

    def num_active_parameters(self) -> int:
        """All but the experts that a token is not sent to."""
        return self.num_active_linear_parameters() + self._num_other_parameters()

    def _expert_shapes(self, experts: Experts, chosen: range) -> dict[str, tuple[int, int]]:
        shapes: dict[str, tuple[int, int]] = {}
        for expert in chosen:
            shapes |= self.mlp_shapes(experts.intermediate_size, expert_owner(expert))
        if experts.shared_intermediate_size is not None:
            shapes |= self.mlp_shapes(experts.shared_intermediate_size, SHARED)
        return shapes

    def _num_weights(self, shapes_of: Callable[[int], dict[str, tuple[int, int]]]) -> int:
        """Summed over the layers, of which there are two kinds at most."""
        by_kind = {self.has_experts(layer): layer for layer in range(self.num_layers)}
        num_of_kind = Counter(self.has_experts(layer) for layer in range(self.num_layers))
        return sum(
            num_of_kind[kind] * sum(o * i for o, i in shapes_of(layer).values())
            for kind, layer in by_kind.items()
        )

    def _num_other_parameters(self) -> int:
        h = self.hidden_size
        total = self.vocab_size * h
        if not self.tied_embeddings:
            total += self.vocab_size * h
        if isinstance(self.positions, LearnedPositions):
            total += (self.max_positions + self.positions.offset) * h
        per_norm = h * (2 if self.norm == "layer" else 1)
        total += per_norm * (2 * self.num_layers + 1)
        routers = [self.router_shapes(layer) for layer in range(self.num_layers)]
        total += sum(o * i for shapes in routers for o, i in shapes.values())
        return total + self.num_layers * self._num_layer_extras()

    def _num_layer_extras(self) -> int:
        """Norms of heads, and biases: models with experts have none in their MLPs."""
        shapes = self.attention_shapes() | self.mlp_shapes()
        extras = 2 * self.head_dim if self.qk_norm else 0
        if self.qkv_bias:
            extras += sum(shapes[role][0] for role in ("q", "k", "v"))
        if self.attention_out_bias:
            extras += shapes["o"][0]
        if self.mlp_bias:
            extras += sum(shapes[role][0] for role in ("gate", "up", "down") if role in shapes)
        return extras
