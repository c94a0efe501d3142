"""ModelSpec: the complete description of a transformer, without its weights.

Both executors run from it. A new family fills it in a new way and adds no code that runs.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from paredown.spec.experts import Experts
from paredown.spec.head import Head
from paredown.spec.layer import LayerSpec, Shapes
from paredown.spec.norm import Norm


@dataclass(frozen=True, kw_only=True)
class LearnedPositions:
    """Position vectors that are added to the embedding: row `position + offset` of a table (OPT:
    2)."""

    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """The token embeddings, multiplied by `multiplier` (Gemma, Granite), and what is added to them.

    `positions`         the table of positions if they are learned
    `num_token_types`   rows of the table of token types (BERT: the segments of a pair); 0: no table
    `norm`              on the sum of all tables (BERT)
    """

    positions: LearnedPositions | None = None
    multiplier: float = 1.0
    num_token_types: int = 0
    norm: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output layer.

    It uses the embedding's table where it `is_tied`, else a table of its own that may have a bias
    (`has_bias`, Phi-2). Logits are multiplied by `multiplier` and become `soft_cap * tanh(logit /
    soft_cap)`.
    """

    is_tied: bool = False
    has_bias: bool = False
    multiplier: float = 1.0
    soft_cap: float | None = None


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model: embedding, layers that may all differ, final norm and output layer.

    `final_norm`   None where the last layer ends with a norm of its own (BERT)
    `output`       None for an encoder, whose result is a vector for each token
    `head`         what makes vectors of texts, scores or labels of the token vectors
    `encoder`      for a decoder that reads a text through cross-attention (T5): the model of that
                   text's vectors, which shares the embedding
    """

    family: str
    vocab_size: int
    hidden_size: int
    max_positions: int
    embedding: Embedding
    layers: tuple[LayerSpec, ...]
    final_norm: Norm | None
    output: Output | None
    head: Head | None = None
    encoder: "ModelSpec | None" = None

    @property
    def is_tied(self) -> bool:
        """Whether the output layer is the embedding's table."""
        return self.output is not None and self.output.is_tied

    @property
    def has_own_output(self) -> bool:
        """Whether there is an output layer with a table of its own."""
        return self.output is not None and not self.output.is_tied

    @property
    def present_output(self) -> Output:
        """The output layer of a model that is known to have one."""
        assert self.output is not None
        return self.output

    @property
    def last_norm(self) -> Norm:
        """The norm that the last token vectors pass: the final one, or one of the last layer."""
        if self.final_norm is not None:
            return self.final_norm
        return next(reversed(self.layers[-1].norms.by_role().values()))

    @property
    def generates(self) -> bool:
        """Whether the model predicts tokens; an encoder does not."""
        return self.output is not None

    @property
    def gives_scores(self) -> bool:
        """Whether an encoder gives each text one number, as rerankers do; the cosine of two is 1 or
        -1."""
        head = self.head
        return not self.generates and head is not None and head.output_size(self.hidden_size) == 1

    @property
    def is_causal(self) -> bool:
        """Whether no token sees a later one, in any layer."""
        return all(layer.attention.is_causal for layer in self.layer_counts)

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @cached_property
    def layer_counts(self) -> Counter[LayerSpec]:
        """How often each kind of layer occurs, in order of first appearance. Sums over the layers
        need only visit each kind once."""
        return Counter(self.layers)

    @property
    def is_uniform(self) -> bool:
        """Whether all layers are alike."""
        return len(self.layer_counts) == 1

    @cached_property
    def windows(self) -> tuple[int, ...]:
        """The distinct sliding windows of the layers, the smallest first."""
        found = {layer.attention.window for layer in self.layer_counts}
        return tuple(sorted(window for window in found if window is not None))

    @cached_property
    def expert_kinds(self) -> tuple[Experts, ...]:
        """The distinct kinds of experts of the layers."""
        kinds = (layer.experts for layer in self.layer_counts)
        return tuple(dict.fromkeys(one for one in kinds if one is not None))

    @cached_property
    def rotary_switch(self) -> int | None:
        """The text length above which the whole text is rotated by other frequencies (longrope);
        None where the length does not matter."""
        rotaries = (layer.attention.rotary for layer in self.layer_counts)
        switches = {one.switch_tokens for one in rotaries if one is not None}
        found = [switch for switch in switches if switch is not None]
        assert len(found) <= 1, "layers that switch do so at one length"
        return found[0] if found else None

    @property
    def is_rotary(self) -> bool:
        """Whether every layer rotates its queries and keys."""
        return all(layer.attention.rotary is not None for layer in self.layer_counts)

    @property
    def has_experts(self) -> bool:
        """Whether some layer has experts."""
        return bool(self.expert_kinds)

    def with_window(self, window: int | None) -> "ModelSpec":
        """Returns the model with that window in every layer."""
        layers = (
            replace(layer, attention=replace(layer.attention, window=window))
            for layer in self.layers
        )
        return replace(self, layers=tuple(layers))

    def linear_shapes(self, layer: int) -> Shapes:
        """Returns the shape (out, in) of each linear layer of one transformer layer, by role."""
        return self.layers[layer].linear_shapes(self.hidden_size)

    def router_shapes(self, layer: int) -> Shapes:
        """Returns the shapes (out, in) of a layer's router and shared gate, by role."""
        return self.layers[layer].router_shapes(self.hidden_size)

    @property
    def position_shape(self) -> tuple[int, int] | None:
        """The rows and columns of the table of learned positions, or None."""
        if self.embedding.positions is None:
            return None
        return self.max_positions + self.embedding.positions.offset, self.hidden_size

    def vector_sizes(self) -> dict[str, int]:
        """Returns the sizes of the norms and biases outside the layers, by role:
        "embedding_norm.weight", "final_norm.weight", "output.bias"."""
        norms = {"embedding_norm": self.embedding.norm, "final_norm": self.final_norm}
        sizes = {
            f"{role}.{part}": self.hidden_size
            for role, norm in norms.items()
            if norm is not None
            for part in norm.parts
        }
        has_bias = self.output is not None and self.output.has_bias
        return sizes | ({"output.bias": self.vocab_size} if has_bias else {})

    @property
    def relative_shape(self) -> tuple[int, int] | None:
        """The buckets and heads of the table of relative positions, or None."""
        for layer in self.layer_counts:
            if layer.attention.relative is not None:
                return layer.attention.relative.num_buckets, layer.attention.num_heads
        return None

    def num_linear_parameters(self) -> int:
        """Counts the weights of the linear layers inside the transformer layers, those of the
        encoder included, without embedding, output layer and routers."""
        own = self._sum(lambda layer: _num_weights(layer.linear_shapes(self.hidden_size)))
        return own + (0 if self.encoder is None else self.encoder.num_linear_parameters())

    def num_active_linear_parameters(self) -> int:
        """Counts those of these weights that one token is multiplied with, the encoder's
        included."""
        own = self._sum(lambda layer: _num_weights(layer.active_shapes(self.hidden_size)))
        return own + (0 if self.encoder is None else self.encoder.num_active_linear_parameters())

    def num_router_parameters(self) -> int:
        """Counts the weights of routers and shared gates."""
        return self._sum(lambda layer: _num_weights(layer.router_shapes(self.hidden_size)))

    def num_parameters(self) -> int:
        """Counts all weights, biases and norms; a tied output layer counts once."""
        return self.num_linear_parameters() + self._num_other_parameters()

    def num_active_parameters(self) -> int:
        """Counts all parameters except those of experts that a token is not sent to."""
        return self.num_active_linear_parameters() + self._num_other_parameters()

    def _num_other_parameters(self) -> int:
        num_rows = self.vocab_size * (2 if self.has_own_output else 1)
        num_rows += 0 if self.position_shape is None else self.position_shape[0]
        num_rows += self.embedding.num_token_types
        vectors = self._sum(lambda layer: sum(layer.vector_sizes(self.hidden_size).values()))
        vectors += sum(self.vector_sizes().values())
        vectors += 0 if self.head is None else self.head.num_parameters(self.hidden_size)
        vectors += self._num_relative_biases()
        own = num_rows * self.hidden_size + vectors + self.num_router_parameters()
        if self.encoder is None:
            return own
        # The table of the embedding is counted once.
        encoder = self.encoder
        return own + encoder._num_other_parameters() - encoder.vocab_size * encoder.hidden_size

    def _num_relative_biases(self) -> int:
        shape = self.relative_shape
        return 0 if shape is None else shape[0] * shape[1]

    def _sum(self, count_of: Callable[[LayerSpec], int]) -> int:
        return sum(count * count_of(layer) for layer, count in self.layer_counts.items())


def _num_weights(shapes: Shapes) -> int:
    return sum(rows * columns for rows, columns in shapes.values())
