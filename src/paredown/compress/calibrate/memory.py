"""Predicts how much memory a calibration will take at its peak.

It adds up what is alive in the worst moment of the worst layer: float32 weights, second moments
and their factors for the widest input, a batch's intermediate values, and the tables before the
layers. PyTorch's own memory was measured once (benchmarks/calibration/).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from paredown.compress.calibrate.block import batch_size
from paredown.compress.calibrate.input_sample import EXPERT_TOKENS, PREFIX_TOKENS
from paredown.errors import CapacityError
from paredown.kernels.probe import available_memory_bytes
from paredown.models.decoder.points import ROLE_POINTS, input_point
from paredown.spec.experts import expert_index, split_role
from paredown.spec.model import ModelSpec
from paredown.units import format_bytes

# The libraries' code and buffers, in resident memory.
BASE_BYTES = 500 << 20
# The float32 copies of a linear layer's weight while it is quantized: the original, the one that
# absorbs errors, its codes, and the scratch of a stretch of columns.
_WEIGHT_COPIES = 4
# For one H, beside all those of a pass: its factor, a scratch matrix of the factorization, and the
# shrunk H of an expert.
_HESSIAN_COPIES = 2
_EXPERT_HESSIAN_COPIES = 3
# The tensors of a batch alive at once, in units of the hidden and of the intermediate size.
_HIDDEN_COPIES = 8
_INTERMEDIATE_COPIES = 3
_SCORES_COPIES = 3
# The tensors of an encoder's token: its vector, keys and values, and these split into heads.
_ENCODED_COPIES = 5
# The float32 copies of a layer's weights while a transform searches: kept, tried, being rounded. It
# compares on at most this many tokens, in prefixes of windows.
_SEARCH_COPIES = 3
_SEARCH_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class CalibrationMemory:
    """The terms of the peak memory, in bytes."""

    base: int
    tables: int
    layer: int
    moments: int
    search: int
    batch: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())

    def require(self) -> None:
        """Raises CapacityError, with the arithmetic, if it does not fit now."""
        available = available_memory_bytes()
        if self.total <= available:
            return
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in asdict(self).items())
        raise CapacityError(
            "calibration does not fit in memory",
            seen=f"{parts}: {format_bytes(self.total)} of {format_bytes(available)} available",
            remedy="Use shorter windows (--calibration-tokens), or a method without calibration.",
        )


def predict_memory(
    spec: ModelSpec,
    num_tokens: int,
    *,
    needs_hessian: bool,
    has_transforms: bool,
    num_answer_tokens: int = 0,
) -> CalibrationMemory:
    """Predicts the peak memory of a calibration on windows of `num_tokens`. The decoder of an
    encoder-decoder reads `num_answer_tokens` beside each, after its encoder is finished."""
    if spec.encoder is not None:
        encoder = predict_memory(
            spec.encoder, num_tokens, needs_hessian=needs_hessian, has_transforms=has_transforms
        )
        decoder = _predict_stack(
            spec,
            num_answer_tokens,
            num_tokens,
            needs_hessian=needs_hessian,
            has_transforms=has_transforms,
        )
        return max(encoder, decoder, key=lambda one: one.total)
    return _predict_stack(
        spec, num_tokens, 0, needs_hessian=needs_hessian, has_transforms=has_transforms
    )


def _predict_stack(
    spec: ModelSpec, num_tokens: int, num_encoded: int, *, needs_hessian: bool, has_transforms: bool
) -> CalibrationMemory:
    """Predicts for one stack of layers, whose cross-attention reads `num_encoded` tokens."""
    hidden = spec.hidden_size
    shapes = max((layer.linear_shapes(hidden) for layer in spec.layer_counts), key=_num_values)
    layer_values = _num_values(shapes)
    largest = max(rows * columns for rows, columns in shapes.values())
    num_windows = batch_size(spec, num_tokens, num_encoded)
    rows = num_windows * num_tokens
    widest_mlp = max(shape[1] for role, shape in shapes.items() if split_role(role)[1] == "down")
    per_row = _HIDDEN_COPIES * spec.hidden_size + _INTERMEDIATE_COPIES * widest_mlp
    num_heads = max(layer.attention.num_heads for layer in spec.layer_counts)
    scores = num_heads * max(num_tokens, num_encoded) * _SCORES_COPIES
    prefix_keys = max(min(num_tokens, PREFIX_TOKENS), num_encoded)
    prefix_scores = num_heads * prefix_keys * _SCORES_COPIES
    search = _SEARCH_COPIES * layer_values + _SEARCH_TOKENS * (per_row + prefix_scores)
    search += _expert_samples(spec, shapes) + _encoded_samples(spec, num_tokens, num_encoded)
    # The encoder's vectors, with their keys and values.
    encoded = num_windows * num_encoded * _ENCODED_COPIES * hidden
    return CalibrationMemory(
        base=BASE_BYTES,
        # The embedding is looked up in float32 once, before the first layer.
        tables=4 * spec.vocab_size * spec.hidden_size,
        layer=4 * (layer_values + _WEIGHT_COPIES * largest),
        moments=4 * _num_moments(shapes) if needs_hessian else 0,
        search=4 * search if has_transforms else 0,
        batch=4 * (rows * (per_row + scores) + encoded),
    )


def _num_values(shapes: Mapping[str, tuple[int, int]]) -> int:
    return sum(rows * columns for rows, columns in shapes.values())


def _num_moments(shapes: Mapping[str, tuple[int, int]]) -> int:
    """Returns the numbers in the moments of the largest pass, which sums all experts at once."""
    most = 0
    for point in dict.fromkeys(ROLE_POINTS.values()):
        inputs = {
            input_point(role): columns
            for role, (_, columns) in shapes.items()
            if ROLE_POINTS[split_role(role)[1]] == point
        }
        if not inputs:
            continue
        is_experts = any(expert_index(one) is not None for one in inputs)
        num_copies = _EXPERT_HESSIAN_COPIES if is_experts else _HESSIAN_COPIES
        sums = sum(columns * columns for columns in inputs.values())
        most = max(most, sums + num_copies * max(inputs.values()) ** 2)
    return most


def _encoded_samples(spec: ModelSpec, num_tokens: int, num_encoded: int) -> int:
    """Returns the numbers of the encoder's vectors that a search keeps, whole texts each."""
    length = min(num_tokens, PREFIX_TOKENS, _SEARCH_TOKENS) or 1
    num_texts = max(1, _SEARCH_TOKENS // length)
    return num_texts * num_encoded * _ENCODED_COPIES * spec.hidden_size


def _expert_samples(spec: ModelSpec, shapes: Mapping[str, tuple[int, int]]) -> int:
    """Returns the numbers that a search keeps of the inputs of each expert and its last linear
    layer."""
    downs = [
        columns
        for role, (_, columns) in shapes.items()
        if expert_index(role) is not None and split_role(role)[1] == "down"
    ]
    return EXPERT_TOKENS * sum(columns + spec.hidden_size for columns in downs)
