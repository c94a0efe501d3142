"""Which kernel serves a format of weights, or of keys and values, on an instruction set, and why:
what `doctor` prints."""

from dataclasses import dataclass, field
from typing import Literal

from paredown.kernels.isa import ENVIRONMENT_VARIABLE, chosen_isa, supported_isas
from paredown.spec.kv import KV_DTYPES, KVDType
from paredown.spec.weight import DTYPES, ActivationDType, WeightDType

# What computes 8-bit codes computes codes of fewer bits, but for the sets that have a shorter way.
_FULL_BYTE: WeightDType = "int8"


Operation = Literal["linear", "attention"]
AttentionInput = Literal["fp32", "bf16 twice", "int8 thrice"]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """How pages meet queries and weights: as `inputs`, "bf16 twice" being a sum of two bf16 numbers
    for each, "int8 thrice" three digits of a byte."""

    inputs: AttentionInput
    instructions: str


@dataclass(frozen=True, kw_only=True)
class InstructionSet:
    """How an instruction set multiplies: floats, 8-bit codes, codes of fewer bits, bf16 numbers;
    and the pages of attention, by format, where not as floats."""

    floats: str
    codes_8: str
    codes_below_8: str
    bf16: str
    attention: dict[KVDType, Attention] = field(default_factory=dict)
    # Whether this project's checks have run on such a processor, or under an emulator alone.
    emulated_only: bool = False


@dataclass(frozen=True, kw_only=True)
class KernelChoice:
    """One row: what is computed, the format of its weights or pages, the form of the input (of the
    queries) that meets them, and the instructions that do it."""

    operation: Operation
    dtype: WeightDType | KVDType
    inputs: ActivationDType | AttentionInput
    instructions: str


_AVX2 = "vfmadd, 8 lanes"
_AVX512 = "vfmadd, 16 lanes"
_AVX_VNNI = "vpdpbusd (AVX-VNNI), 32 products each"
_AVX512_VNNI = "vpdpbusd (VNNI), 64 products each"
_AMX_INT8 = "AMX tiles, tdpbssd or tdpbsud; few tokens: " + _AVX512_VNNI
_NEON = "fmla, 4 lanes"
_ROUNDED = "input rounded to bf16, then "
_UNPACKED = "unpacked to bf16, then "


def _byte_pages(instructions: str) -> dict[KVDType, Attention]:
    digits = Attention(inputs="int8 thrice", instructions=instructions)
    return {"int8": digits, "int4": digits}


# One row per name of csrc/machine/isa.cpp, of all processors.
INSTRUCTION_SETS: dict[str, InstructionSet] = {
    "generic": InstructionSet(
        floats="plain C++ multiply and add",
        codes_8="plain C++ integer products",
        codes_below_8="plain C++ integer products",
        bf16=_ROUNDED + "plain C++ multiply and add",
    ),
    "avx2": InstructionSet(
        floats=_AVX2,
        codes_8="vpmaddwd on widened bytes",
        codes_below_8="vpmaddubsw, which cannot saturate below 8 bits",
        bf16=_ROUNDED + _AVX2,
    ),
    "avx2_vnni": InstructionSet(
        floats=_AVX2,
        codes_8=_AVX_VNNI,
        codes_below_8=_AVX_VNNI,
        bf16=_ROUNDED + _AVX2,
        attention=_byte_pages(_AVX_VNNI),
    ),
    "avx512": InstructionSet(
        floats=_AVX512,
        codes_8=_AVX512_VNNI,
        codes_below_8=_AVX512_VNNI,
        bf16=_ROUNDED + _AVX512,
        attention=_byte_pages(_AVX512_VNNI),
    ),
    "avx512_bf16": InstructionSet(
        floats=_AVX512,
        codes_8=_AVX512_VNNI,
        codes_below_8=_AVX512_VNNI,
        bf16="vdpbf16ps, 32 products each",
        attention=_byte_pages(_AVX512_VNNI),
    ),
    "amx": InstructionSet(
        floats=_AVX512,
        codes_8=_AMX_INT8,
        codes_below_8=_AMX_INT8,
        bf16="AMX tiles, tdpbf16ps",
        attention={
            "bf16": Attention(inputs="bf16 twice", instructions="AMX tiles, tdpbf16ps"),
            "fp8": Attention(inputs="bf16 twice", instructions=_UNPACKED + "AMX tiles, tdpbf16ps"),
            **_byte_pages("AMX tiles, tdpbssd"),
        },
    ),
    "neon": InstructionSet(
        floats=_NEON,
        codes_8="smull on shifted codes, then a correction",
        codes_below_8="smull, pairs added",
        bf16=_ROUNDED + _NEON,
        emulated_only=True,
    ),
    "neon_dotprod": InstructionSet(
        floats=_NEON,
        codes_8="sdot on shifted codes, then a correction",
        codes_below_8="sdot, 16 products each",
        bf16=_ROUNDED + _NEON,
        attention=_byte_pages("sdot, 16 products each"),
        emulated_only=True,
    ),
    "neon_i8mm": InstructionSet(
        floats=_NEON,
        codes_8="usdot, 16 products each",
        codes_below_8="usdot, 16 products each",
        bf16="bfdot, 8 products each",
        attention=_byte_pages("usdot, 16 products each"),
        emulated_only=True,
    ),
}


def explain_kernels(isa: str) -> list[KernelChoice]:
    """The kernels of one instruction set: a row per weight format with its usual activations, then
    a row per format of keys and values."""
    linear = [
        KernelChoice(
            operation="linear",
            dtype=dtype,
            inputs=traits.activations[0],
            instructions=_instructions(isa, dtype, traits.activations[0]),
        )
        for dtype, traits in DTYPES.items()
        if traits.held_as is None
    ]
    return linear + [_explain_attention(isa, dtype) for dtype in KV_DTYPES]


def _explain_attention(isa: str, dtype: KVDType) -> KernelChoice:
    row = INSTRUCTION_SETS[isa]
    floats = f"{_UNPACKED if dtype == 'fp8' else ''}{row.floats}"
    attention = row.attention.get(dtype, Attention(inputs="fp32", instructions=floats))
    return KernelChoice(
        operation="attention",
        dtype=dtype,
        inputs=attention.inputs,
        instructions=attention.instructions,
    )


def _instructions(isa: str, dtype: WeightDType, activations: ActivationDType) -> str:
    row = INSTRUCTION_SETS[isa]
    if activations == "fp32":
        return row.floats
    if activations == "bf16":
        return row.bf16
    return row.codes_8 if dtype == _FULL_BYTE else row.codes_below_8


def explain_isa() -> str:
    """Why the instruction set in force was chosen, in one sentence."""
    chosen, supported = chosen_isa(), supported_isas()
    if chosen != supported[-1]:
        reason = f"forced by {ENVIRONMENT_VARIABLE} (the best here is {supported[-1]})"
    else:
        reason = f"the widest this processor has of {', '.join(supported)}"
    if INSTRUCTION_SETS[chosen].emulated_only:
        reason += "; tested under an emulator only, never on such a processor"
    return f"{chosen}: {reason}"
