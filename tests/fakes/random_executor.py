"""A native executor with random weights of any shape and format, without files."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from drivers.native_linear import source_of
from fakes.specs import context_of, flat_spec
from paredown.executors.native.native_executor import NativeExecutor
from paredown.kernels.linear_source import LinearSource
from paredown.kernels.native_model import NativeModel
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.attention import Attention
from paredown.spec.context import Context
from paredown.spec.kv import KVDTypes, KVScales, KVSpec
from paredown.spec.model import ModelSpec
from paredown.spec.norm import Norm
from paredown.spec.roles import row_groups
from paredown.spec.rotary import Rotary
from paredown.spec.weight import WeightSpec
from references.linear import random_case

TINY = flat_spec(
    family="llama",
    vocab_size=97,
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=96,
    max_positions=256,
    positions=Rotary(theta=10000.0),
    norm="rms",
    norm_eps=1e-5,
    activation="silu",
    gated=True,
)

WEIGHT_SPECS = {
    spec.name: spec
    for spec in (
        WeightSpec(dtype="fp32"),
        WeightSpec(dtype="bf16"),
        WeightSpec(dtype="fp16"),
        WeightSpec(dtype="int8"),
        WeightSpec(dtype="int8", symmetric=False),
        WeightSpec(dtype="int4", group_size=32),
        WeightSpec(dtype="int4", group_size=32, symmetric=False),
    )
}


def random_linear(
    rng: np.random.Generator, spec: WeightSpec, rows: int, columns: int
) -> LinearSource:
    """Returns a weight whose product with a unit-variance input has about unit variance."""
    case = random_case(
        rng,
        spec.dtype,
        (rows, columns),
        group_size=spec.group_size,
        symmetric=spec.symmetric,
        activations=spec.activations,
    )
    values, scales = case.values_OI, case.scales_OG
    if scales is not None:
        scales = (scales * np.float32(8.0 if spec.dtype == "int4" else 0.5)).astype(np.float32)
        scales = scales / np.float32(4 * np.sqrt(columns))
    elif spec.dtype != "bf16":
        values = (values / np.sqrt(columns)).astype(values.dtype)
    return source_of(replace(case, values_OI=values, scales_OG=scales))


def random_executor(
    context: ModelSpec | Context,
    weights: WeightSpec,
    *,
    num_pages: int = 64,
    num_threads: int = 1,
    decode_threads: int | None = None,
    kv_dtype: KVDTypes = "bf16",
    make_linear: Callable[..., LinearSource] = random_linear,
    seed: int = 0,
) -> NativeExecutor:
    context = context_of(context)
    spec, rng = context.spec, np.random.default_rng(seed)
    kv = KVSpec(num_pages=num_pages, dtype=kv_dtype)
    threads = ThreadPlan(prefill=num_threads, decode=decode_threads or num_threads)
    scales = {number: kv_scales(layer.attention) for number, layer in enumerate(spec.layers)}
    model = NativeModel(context, kv, threads, scales)

    def set_norm(norm: Norm, role: str, layer: int, size: int) -> None:
        weight = (1 + 0.1 * rng.normal(size=size)).astype(np.float32)
        bias = (0.1 * rng.normal(size=size)).astype(np.float32) if norm.has_bias else None
        model.set_norm(role, layer, weight, bias)

    hidden = spec.hidden_size
    table = rng.normal(size=(spec.vocab_size, hidden)).astype(np.float32)
    model.set_embedding("fp32", table)
    learned = spec.embedding.positions
    if learned is not None:
        rows = spec.max_positions + learned.offset
        positions = rng.normal(size=(rows, hidden)).astype(np.float32)
        model.set_positions("fp32", positions, learned.offset)
    set_norm(spec.final_norm, "final_norm", 0, hidden)
    model.add_linear("output", 0, make_linear(rng, weights, spec.vocab_size, hidden))
    for number, layer in enumerate(spec.layers):
        shapes, sizes = layer.linear_shapes(hidden), layer.norm_sizes(hidden)
        for role, norm in layer.norms.by_role().items():
            set_norm(norm, role, number, sizes[role])
        for group, roles in row_groups(shapes).items():
            rows = sum(shapes[role][0] for role in roles)
            columns = shapes[roles[0]][1]
            model.add_linear(group, number, make_linear(rng, weights, rows, columns))
        for role, (rows, columns) in layer.router_shapes(hidden).items():
            router = random_linear(rng, WeightSpec(dtype="fp32"), rows, columns)
            model.add_linear(role, number, router)
    return NativeExecutor(model, kv)


def kv_scales(attention: Attention) -> KVScales:
    """Returns scales at which some values are clamped: these models' keys reach about 4, values
    about 3."""
    heads = range(1, attention.num_kv_heads + 1)
    return KVScales(
        keys=tuple(0.02 * head for head in heads), values=tuple(0.01 * head for head in heads)
    )
