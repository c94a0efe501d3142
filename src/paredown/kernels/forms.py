"""The kernels that serve a format of weights, or of keys and values, on an instruction set. They
come from the core's own dispatch tables, queried with layers of a typical shape."""

from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from paredown.kernels import _core
from paredown.kernels.bitmap_choice import BitmapChoice
from paredown.kernels.linear_source import LinearSource, named_arrays
from paredown.spec.kv import KV_DTYPES
from paredown.spec.weight import DTYPES, INTEGERS, WeightDType, WeightSpec

Operation = Literal["linear", "attention"]

# An even number of panels, with rows too long to stay in a cache.
_ROWS, _COLUMNS = 64, 2048
# From this number of tokens on the kernel is always the same.
_MAX_TOKENS = 1024
_ELEMENTS: dict[WeightDType, type[np.generic]] = {
    "fp32": np.float32,
    "fp16": np.uint16,
    "bf16": np.uint16,
}
_PLAIN: tuple[WeightDType, ...] = ("fp32", "fp16", "bf16", "fp8", "int8")
# The usual formats of checkpoints.
WEIGHTS: tuple[WeightSpec, ...] = (
    *(WeightSpec(dtype=dtype) for dtype in _PLAIN),
    WeightSpec(dtype="int8", activations="int8_row"),
    WeightSpec(dtype="int4", group_size=128, activations="int8_row", integer_steps=True),
    WeightSpec(dtype="int4", group_size=128),
    WeightSpec(dtype="int4", group_size=128, activations="bf16"),
    WeightSpec(dtype="int4", group_size=128, activations="fp32"),
    *(
        WeightSpec(dtype=dtype, group_size=32)
        for dtype in INTEGERS
        if dtype != "int8" and DTYPES[dtype].held_as is None
    ),
    *(WeightSpec(dtype=dtype) for dtype, traits in DTYPES.items() if traits.block is not None),
)
# What may be held as a bitmap (docs/internals/sparse.md).
BITMAPS: tuple[WeightSpec, ...] = (
    WeightSpec(dtype="bf16"),
    WeightSpec(dtype="int8"),
    WeightSpec(dtype="int8", activations="int8_row"),
)


@dataclass(frozen=True, kw_only=True)
class KernelUse:
    """The kernel that computes `operation` with weights or pages of `dtype` for `tokens` tokens at
    once: "1", "2-16", "17+", or "any"."""

    operation: Operation
    dtype: str
    tokens: str
    form: str


def kernel_uses(isa: str) -> list[KernelUse]:
    """Returns the kernels of one instruction set: for each format of weights a row per range of
    tokens, the same of weights held as bitmaps, then a row per format of keys and values."""
    pages = dict(_core.attention_forms(isa))
    linear = [use for spec in WEIGHTS for use in _linear_uses(isa, spec)]
    linear += [use for spec in BITMAPS for use in _linear_uses(isa, spec, bitmap="always")]
    return linear + [
        KernelUse(operation="attention", dtype=dtype, tokens="any", form=pages[dtype])
        for dtype in KV_DTYPES
    ]


def _linear_uses(isa: str, spec: WeightSpec, bitmap: BitmapChoice = "auto") -> list[KernelUse]:
    layer = _made_up_layer(isa, spec, bitmap)
    name = spec.name if bitmap == "auto" else f"{spec.name} bitmap"
    uses = []
    for form, counts in groupby(range(1, _MAX_TOKENS + 1), layer.form):
        first, *rest = counts
        last = rest[-1] if rest else first
        tokens = f"{first}-{last}" if rest else str(first)
        if last == _MAX_TOKENS:
            tokens = "any" if first == 1 else f"{first}+"
        uses.append(KernelUse(operation="linear", dtype=name, tokens=tokens, form=form))
    return uses


def _made_up_layer(isa: str, spec: WeightSpec, bitmap: BitmapChoice) -> _core.Linear:
    block = spec.traits.block
    width = _COLUMNS if block is None else block.row_bytes(_COLUMNS)
    # Codes, and bf16 numbers, that are no zeros: those would be held as bitmaps.
    values = np.ones((_ROWS, width), dtype=_ELEMENTS.get(spec.dtype, np.uint8))
    group_size = spec.group_size or _COLUMNS
    groups = (_ROWS, _COLUMNS // group_size)
    scales = np.ones((_ROWS, 1) if spec.integer_steps else groups, dtype=np.float32)
    source = LinearSource(
        kind=spec.dtype,
        activations=spec.activations,
        group_size=group_size,
        arrays=named_arrays(
            values=values,
            scales=scales if spec.is_quantized and block is None else None,
            steps=np.ones(groups, dtype=np.uint8) if spec.integer_steps else None,
        ),
        bitmap=bitmap,
    )
    return _core.Linear(isa, 1, source.fields())
