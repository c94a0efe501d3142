"""Head: what makes a vector, scores or labels of a text from the vectors of its tokens."""

from dataclasses import dataclass
from typing import Literal

from paredown.spec.norm import Norm

HeadActivation = Literal["silu", "gelu", "gelu_tanh", "relu", "tanh", "sigmoid"]
# How the vectors of a text's tokens become one: that of the first token, of the last, their mean,
# their sum over the root of their number, their mean with weights 1, 2, 3, ..., or their maxima.
# "max_log_relu" is the maximum of log(1 + max(x, 0)) (SPLADE, arXiv 2109.10086).
PoolingKind = Literal[
    "cls", "last", "mean", "mean_sqrt_len", "weighted_mean", "max", "max_log_relu"
]
# embedding: a vector for each text; token_vectors: one for each token (ColBERT); sparse: a weight
# for each token of the vocabulary (SPLADE); classification: a number for each label.
HeadKind = Literal["embedding", "token_vectors", "sparse", "classification"]


@dataclass(frozen=True, kw_only=True)
class HeadStep:
    """A linear layer, then an activation, then a norm. The weight of a step that `is_tied` is the
    embedding's table."""

    size: int
    has_bias: bool = True
    activation: HeadActivation | None = None
    norm: Norm | None = None
    is_tied: bool = False


@dataclass(frozen=True, kw_only=True)
class Head:
    """The part after the last layer: `token_steps` on each token's vector, `pooling`, `steps` on
    the text's vector, and division by its length where `is_normalized`.

    Several kinds of pooling give vectors that lie one after the other; none keeps a vector for each
    token. Tokens of a head without pooling have no `steps`.
    """

    kind: HeadKind
    token_steps: tuple[HeadStep, ...] = ()
    pooling: tuple[PoolingKind, ...] = ()
    steps: tuple[HeadStep, ...] = ()
    is_normalized: bool = False

    def step_shapes(self, hidden_size: int) -> dict[str, tuple[int, int]]:
        """Returns the shape (out, in) of each step's weight by its role: "head.token.0",
        "head.0"."""
        shapes, size = {}, hidden_size
        for role, step in self.steps_by_role().items():
            if role == "head.0":
                size *= max(1, len(self.pooling))
            shapes[role] = (step.size, size)
            size = step.size
        return shapes

    def steps_by_role(self) -> dict[str, HeadStep]:
        """Returns all steps in order, by role."""
        found = {f"head.token.{index}": step for index, step in enumerate(self.token_steps)}
        return found | {f"head.{index}": step for index, step in enumerate(self.steps)}

    def output_size(self, hidden_size: int) -> int:
        """Returns how many numbers a text, or a token, ends as."""
        last = self.token_steps[-1].size if self.token_steps else hidden_size
        return self.steps[-1].size if self.steps else last * max(1, len(self.pooling))

    def vector_sizes(self) -> dict[str, int]:
        """Returns the sizes of the steps' biases and norms, by role: "head.0.bias",
        "head.0.norm.weight"."""
        sizes = {}
        for role, step in self.steps_by_role().items():
            if step.has_bias:
                sizes[f"{role}.bias"] = step.size
            if step.norm is not None:
                sizes |= {f"{role}.norm.{part}": step.size for part in step.norm.parts}
        return sizes

    def num_parameters(self, hidden_size: int) -> int:
        """Counts the weights, biases and norms of the steps; a tied weight is not counted."""
        steps, shapes = self.steps_by_role(), self.step_shapes(hidden_size)
        weights = sum(
            rows * columns for role, (rows, columns) in shapes.items() if not steps[role].is_tied
        )
        return weights + sum(self.vector_sizes().values())
