"""The formats of tensors in a GGUF file, by llama.cpp's names."""

from paredown.errors import UnsupportedError
from paredown.formats.gguf import q2_k, q3_k, q4_0, q4_k, q5_0, q5_k, q6_k, q8_0
from paredown.formats.gguf.block_format import BlockFormat, Bytes
from paredown.formats.gguf.floats import BF16, F16, F32
from paredown.formats.gguf.fp4 import MXFP4, NVFP4
from paredown.formats.gguf.iq1 import IQ1_M, IQ1_S
from paredown.formats.gguf.iq2 import IQ2_S, IQ2_XS, IQ2_XXS
from paredown.formats.gguf.iq3 import IQ3_S, IQ3_XXS
from paredown.formats.gguf.iq4 import IQ4_NL, IQ4_XS
from paredown.formats.gguf.ternary import TQ1_0, TQ2_0
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
    "IQ1_S": IQ1_S,
    "IQ1_M": IQ1_M,
    "IQ2_XXS": IQ2_XXS,
    "IQ2_XS": IQ2_XS,
    "IQ2_S": IQ2_S,
    "IQ3_XXS": IQ3_XXS,
    "IQ3_S": IQ3_S,
    "IQ4_NL": IQ4_NL,
    "IQ4_XS": IQ4_XS,
    "TQ1_0": TQ1_0,
    "TQ2_0": TQ2_0,
    "MXFP4": MXFP4,
    "NVFP4": NVFP4,
}
# llama.cpp's other types, so that an error can name them.
OTHER_TYPES: dict[int, str] = {
    9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 41: "Q1_0",
}  # fmt: skip


def exact_format(spec: WeightSpec) -> BlockFormat:
    """Returns the format that holds a spec exactly. Raises UnsupportedError if there is none."""
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
        remedy="It holds fp32, fp16, bf16, and int4, int5 and int8 in symmetric groups of 32 ("
        "Q4_0, Q5_0, Q8_0).",
    )


def encode(weight: CoreWeight) -> tuple[BlockFormat, Bytes]:
    """Returns the format that holds a weight exactly, and its rows [O, bytes]. Raises
    UnsupportedError for a weight that no format can hold."""
    block = exact_format(weight.spec)
    assert block.encode is not None
    return block, block.encode(weight)
