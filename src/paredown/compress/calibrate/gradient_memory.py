"""Predicts how much memory the gradients of a model take at their peak (gradients.py).

Either the output layer or one transformer layer is in memory, with its gradients, their sums, and
what one window computes there. The constants were measured on SmolLM2-135M with windows of 512 and
2048 tokens, and on the built-in model with 256 and 512.
"""

from dataclasses import asdict, dataclass

from paredown.errors import CapacityError
from paredown.kernels.probe import available_memory_bytes
from paredown.spec.layer import LayerSpec
from paredown.spec.model import ModelSpec
from paredown.units import format_bytes

# The libraries' code and buffers, in resident memory.
_BASE_BYTES = 440 << 20
# The bytes of a weight that is pruned: its float32 value, its gradient, and three sums.
_WEIGHT_BYTES = 20
# While a layer is read, two float32 copies of its weights are there.
_READ_BYTES = 8
# The logits that are computed at once, and the float32 tensors of their size.
_LOGITS_VALUES = 4 << 20
_LOGITS_COPIES = 4
# The float32 tensors of a window in a layer that the backward pass needs, in units of the hidden
# size, of the columns of all heads, and of the intermediate size.
_HIDDEN_COPIES = 16
_HEADS_COPIES = 16
_INTERMEDIATE_COPIES = 9


@dataclass(frozen=True, kw_only=True)
class GradientMemory:
    """The terms of the peak memory, in bytes. Of `output` and `layer` the larger counts: they are
    not in memory together."""

    base: int
    output: int
    layer: int

    @property
    def total(self) -> int:
        return self.base + max(self.output, self.layer)

    def require(self) -> None:
        """Raises CapacityError, with the arithmetic, if it does not fit now."""
        available = available_memory_bytes()
        if self.total <= available:
            return
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in asdict(self).items())
        raise CapacityError(
            "the gradients of the model do not fit in memory",
            seen=f"{parts} (the larger of the last two counts): {format_bytes(self.total)} of "
            f"{format_bytes(available)} available",
            remedy="Use shorter windows (--calibration-tokens), or a method without gradients "
            "(wanda, sparsegpt).",
        )


def logits_tokens(spec: ModelSpec) -> int:
    """Returns how many tokens' logits are computed at once."""
    return max(1, _LOGITS_VALUES // spec.vocab_size)


def predict_gradient_memory(spec: ModelSpec, num_tokens: int) -> GradientMemory:
    """Predicts the peak memory for windows of `num_tokens`, if all linear layers are pruned."""
    return GradientMemory(
        base=_BASE_BYTES,
        output=_output_bytes(spec, num_tokens),
        layer=max(_layer_bytes(spec, layer, num_tokens) for layer in spec.layer_counts),
    )


def _output_bytes(spec: ModelSpec, num_tokens: int) -> int:
    table = spec.vocab_size * spec.hidden_size
    logits = 4 * _LOGITS_COPIES * min(num_tokens, logits_tokens(spec)) * spec.vocab_size
    if spec.is_tied:
        return max(_READ_BYTES * table, 4 * table + logits)
    return _WEIGHT_BYTES * table + logits


def _layer_bytes(spec: ModelSpec, layer: LayerSpec, num_tokens: int) -> int:
    shapes = layer.linear_shapes(spec.hidden_size)
    num_weights = sum(rows * columns for rows, columns in shapes.values())
    widest = max(columns for role, (_, columns) in shapes.items() if role.endswith("down"))
    per_token = (
        _HIDDEN_COPIES * spec.hidden_size
        + _HEADS_COPIES * layer.attention.query_size
        + _INTERMEDIATE_COPIES * widest
    )
    return max(_READ_BYTES * num_weights, _WEIGHT_BYTES * num_weights + 4 * num_tokens * per_token)
