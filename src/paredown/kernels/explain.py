"""Which kernel serves a weight format on an instruction set, and why: what `doctor` prints."""

from dataclasses import dataclass

from paredown.kernels.isa import ENVIRONMENT_VARIABLE, chosen_isa, supported_isas
from paredown.spec.weight import WeightDType


@dataclass(frozen=True, kw_only=True)
class KernelChoice:
    """One row: the format, the input it multiplies with, and the instructions that do it."""

    dtype: WeightDType
    activations: str
    instructions: str


_INT8_DOT = {
    "generic": "plain C++ integer products",
    "avx2": "vpmaddwd on widened bytes",
    "avx512": "vpdpbusd (VNNI), 64 products each",
    "avx512_bf16": "vpdpbusd (VNNI), 64 products each",
    "amx": "vpdpbusd (VNNI), 64 products each",
}
_INT4_DOT = _INT8_DOT | {"avx2": "vpmaddubsw, no saturation at 4 bits"}
_FLOAT = {
    "generic": "plain C++ multiply and add",
    "avx2": "vfmadd, 8 lanes",
    "avx512": "vfmadd, 16 lanes",
    "avx512_bf16": "vfmadd, 16 lanes",
    "amx": "vfmadd, 16 lanes",
}
_BF16 = _FLOAT | {
    "avx512_bf16": "vdpbf16ps, input as the sum of two bf16",
    "amx": "vdpbf16ps, input as the sum of two bf16",
}

_INTEGER_ACTIVATIONS = "int8 per row and group"
_ROWS: dict[WeightDType, tuple[str, dict[str, str]]] = {
    "int4": (_INTEGER_ACTIVATIONS, _INT4_DOT),
    "int8": (_INTEGER_ACTIVATIONS, _INT8_DOT),
    "bf16": ("fp32", _BF16),
    "fp16": ("fp32", _FLOAT),
    "fp32": ("fp32", _FLOAT),
}


def explain_kernels(isa: str) -> list[KernelChoice]:
    """The kernels of one instruction set, one row per weight format."""
    return [
        KernelChoice(dtype=dtype, activations=activations, instructions=by_isa[isa])
        for dtype, (activations, by_isa) in _ROWS.items()
    ]


def explain_isa() -> str:
    """Why the instruction set in force was chosen, in one sentence."""
    chosen, supported = chosen_isa(), supported_isas()
    if chosen != supported[-1]:
        return f"{chosen}: forced by {ENVIRONMENT_VARIABLE} (the best here is {supported[-1]})"
    return f"{chosen}: the widest this processor has of {', '.join(supported)}"
