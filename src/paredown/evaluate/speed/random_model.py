"""Builds a native model with random weights of any shape and format, for timing.

A million numbers are drawn and repeated. Layers keep the variance of their input, so that nothing
overflows and no number is denormal, which would be slow.
"""

from math import sqrt

import numpy as np
import numpy.typing as npt

from paredown.executors.load import run_native_model
from paredown.executors.protocol import LoadedExecutor
from paredown.formats.integer_steps import MOST_STEPS
from paredown.formats.tensor import float32_to_bf16
from paredown.kernels.linear_source import LinearSource, named_arrays
from paredown.kernels.native_model import NativeModel
from paredown.kernels.padded_heads import with_padded_heads
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.context import Context
from paredown.spec.kv import KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.norm import Norm
from paredown.spec.roles import row_groups
from paredown.spec.run_form import run_form
from paredown.spec.weight import DTYPES, WeightSpec

_DRAWN = 1 << 20
_ROUTER = WeightSpec(dtype="fp32")


def random_model(
    spec: ModelSpec, weights: WeightSpec, kv: KVSpec, num_threads: int
) -> LoadedExecutor:
    """Returns a model with all linear layers and the output layer in the format `weights`."""
    spec, rng = with_padded_heads(spec), np.random.default_rng(0)
    model = NativeModel(Context(spec=spec), kv, ThreadPlan.resolve(num_threads))
    hidden, learned = spec.hidden_size, spec.embedding.positions
    model.set_embedding("bf16", _bf16(rng, spec.vocab_size, hidden, 1.0))
    if learned is not None:
        rows = spec.max_positions + learned.offset
        model.set_positions("bf16", _bf16(rng, rows, hidden, 0.1), learned.offset)
    _set_norm(model, spec.last_norm, "final_norm", 0, hidden)
    model.add_linear("output", 0, _linear(rng, weights, spec.vocab_size, hidden))
    for index, layer in enumerate(spec.layers):
        sizes = layer.norm_sizes(hidden)
        for role, norm in layer.norms.by_role().items():
            _set_norm(model, norm, role, index, sizes[role])
        shapes = layer.linear_shapes(hidden)
        for group, roles in row_groups(shapes).items():
            num_rows = sum(shapes[role][0] for role in roles)
            num_columns = shapes[roles[0]][1]
            model.add_linear(group, index, _linear(rng, weights, num_rows, num_columns))
        for role, (num_rows, num_columns) in layer.router_shapes(hidden).items():
            model.add_linear(role, index, _linear(rng, _ROUTER, num_rows, num_columns))
    model.check_weights()
    return run_native_model(model, kv)


def _set_norm(model: NativeModel, norm: Norm, role: str, layer: int, size: int) -> None:
    bias = np.zeros(size, np.float32) if norm.has_bias else None
    model.set_norm(role, layer, np.ones(size, np.float32), bias)


def random_linear(weights: WeightSpec, num_rows: int, num_columns: int) -> LinearSource:
    """Returns one linear layer."""
    return _linear(np.random.default_rng(0), weights, num_rows, num_columns)


def _linear(
    rng: np.random.Generator, weights: WeightSpec, num_rows: int, num_columns: int
) -> LinearSource:
    form = run_form(weights, num_columns)
    group_size = form.group_size or num_columns
    if not weights.is_quantized:
        return LinearSource(
            kind=form.kind,
            activations=form.activations,
            group_size=num_columns,
            arrays={"values": _floats(rng, weights, num_rows, num_columns)},
        )
    block = DTYPES[form.kind].block
    if block is not None:
        num_bytes = block.row_bytes(num_columns)
        return LinearSource(
            kind=form.kind,
            activations=form.activations,
            group_size=num_columns,
            arrays={"values": _block_bytes(rng, num_rows, num_bytes)},
        )
    bits = DTYPES[form.kind].bits
    num_groups = num_columns // group_size
    steps_OG, num_scales = None, num_groups
    if form.integer_steps:
        # At least eight times a row's smallest scale: codes times steps fill 8 bits.
        steps_OG = rng.integers(8, MOST_STEPS + 1, (num_rows, num_groups), dtype=np.uint8)
        num_scales = 1
    # fp8 codes are drawn from small positive and negative numbers.
    high = 64 if form.kind == "fp8" else 1 << bits
    codes = rng.integers(0, high, min(_DRAWN, num_rows * num_columns), dtype=np.uint8)
    scale = _scale(bits, num_columns) / (1 if steps_OG is None else 8)
    scales = np.full((num_rows, num_scales), scale, np.float32)
    zeros = None
    if not weights.symmetric:
        zeros = np.full((num_rows, num_groups), 1 << (bits - 1), np.uint8)
    return LinearSource(
        kind=form.kind,
        activations=form.activations,
        group_size=group_size,
        input_scale=0.05 if form.activations == "int8_static" else 0.0,
        arrays=named_arrays(
            values=np.resize(codes, (num_rows, num_columns)),
            scales=scales,
            zero_points=zeros,
            steps=steps_OG,
        ),
    )


def _block_bytes(rng: np.random.Generator, num_rows: int, num_bytes: int) -> npt.NDArray[np.uint8]:
    """Returns super-blocks whose bytes are such that any two form an fp16 number of 2^-13 to 2^-11,
    like scales."""
    drawn = rng.integers(0x08, 0x10, min(_DRAWN, num_rows * num_bytes), dtype=np.uint8)
    return np.resize(drawn, (num_rows, num_bytes))


def _scale(bits: int, num_columns: int) -> float:
    """Returns a power of two, which every scale dtype holds exactly."""
    wanted = 1 / (sqrt(num_columns) * 2 ** (bits - 1) * 0.58)
    return float(2.0 ** round(np.log2(wanted)))


def _floats(
    rng: np.random.Generator, weights: WeightSpec, num_rows: int, num_columns: int
) -> npt.NDArray[np.generic]:
    if weights.dtype == "bf16":
        return _bf16(rng, num_rows, num_columns, 1 / sqrt(num_columns))
    num_drawn = min(_DRAWN, num_rows * num_columns)
    drawn = rng.standard_normal(num_drawn, dtype=np.float32) / np.float32(sqrt(num_columns))
    if weights.dtype == "fp16":
        return np.resize(drawn.astype(np.float16).view(np.uint16), (num_rows, num_columns))
    return np.resize(drawn, (num_rows, num_columns))


def _bf16(
    rng: np.random.Generator, num_rows: int, num_columns: int, scale: float
) -> npt.NDArray[np.generic]:
    num_drawn = min(_DRAWN, num_rows * num_columns)
    drawn = rng.standard_normal(num_drawn, dtype=np.float32) * np.float32(scale)
    return np.resize(float32_to_bf16(drawn), (num_rows, num_columns))
