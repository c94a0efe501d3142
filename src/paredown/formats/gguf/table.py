"""The formats that tensors of a GGUF file have, by llama.cpp's names."""

from paredown.errors import UnsupportedError
from paredown.formats.gguf import mxfp4, q2_k, q3_k, q4_0, q4_k, q5_0, q5_k, q6_k, q8_0
from paredown.formats.gguf.block_format import BlockFormat, Bytes
from paredown.formats.gguf.floats import BF16, F16, F32
from paredown.formats.gguf.iq4 import IQ4_NL, IQ4_XS
from paredown.formats.gguf.with_minimum import Q4_1, Q5_1
from paredown.formats.weight import CoreWeight
from paredown.spec.weight import WeightSpec

BLOCK_FORMATS: dict[str, BlockFormat] = {
    "F32": F32,
    "F16": F16,
    "BF16": BF16,
    "Q4_0": q4_0.FORMAT,
    "Q5_0": q5_0.FORMAT,
    "Q8_0": q8_0.FORMAT,
    "Q4_1": Q4_1,
    "Q5_1": Q5_1,
    "Q2_K": q2_k.FORMAT,
    "Q3_K": q3_k.FORMAT,
    "Q4_K": q4_k.FORMAT,
    "Q5_K": q5_k.FORMAT,
    "Q6_K": q6_k.FORMAT,
    "IQ4_NL": IQ4_NL,
    "IQ4_XS": IQ4_XS,
    "MXFP4": mxfp4.FORMAT,
}
# The others that llama.cpp has, so that a refusal can name them.
OTHER_TYPES: dict[int, str] = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS",
    18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 24: "I8",
    25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
    40: "NVFP4",
}  # fmt: skip


def exact_format(spec: WeightSpec) -> BlockFormat:
    """Raises UnsupportedError for a spec that no format here can hold exactly."""
    for block in BLOCK_FORMATS.values():
        same_form = (spec.dtype, spec.group_size, spec.symmetric)
        if block.encode is not None and same_form == (
            block.spec.dtype,
            block.spec.group_size,
            block.spec.symmetric,
        ):
            return block
    raise UnsupportedError(
        "GGUF has no format that holds these weights exactly",
        seen=spec.name,
        remedy="It holds fp32, fp16, bf16, int4-g32 (Q4_0) and int8 in groups of 32 (Q8_0).",
    )


def encode(weight: CoreWeight) -> tuple[BlockFormat, Bytes]:
    """The format that holds a weight exactly, and its rows, [O, bytes]. Raises UnsupportedError for
    a weight that none can hold."""
    block = exact_format(weight.spec)
    assert block.encode is not None
    return block, block.encode(weight)
