"""bitsandbytes' int8 (LLM.int8(), arXiv 2208.07339) as Transformers stores `load_in_8bit` models
(https://github.com/bitsandbytes-foundation/bitsandbytes).

A module's tensors, after its name and a dot; O rows, I columns:
    weight         I8 [O, I]    signed codes from -127 to 127
    SCB            F32 [O]      each row's largest magnitude: a value is code * SCB / 127
    weight_format  U8 []        0, "row": the only form that is written today
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme
from paredown.formats.stored.section import (
    check_any_codes,
    note_passed_over,
    pass_over_others,
    unsupported,
)
from paredown.formats.stored.stored_format import Layout, StoredFormat
from paredown.formats.stored.tensor_checks import Tensors
from paredown.formats.tensor import StoredTensor
from paredown.spec.weight import WeightSpec

CODES = "weight"
ROW_MAXIMA = "SCB"
ORDER = "weight_format"
# A code stands for code * SCB / 127. Inputs are not rounded, outliers or not.
SPEC = WeightSpec(dtype="int8", activations="fp32")
_LARGEST_CODE = 127
_ROW_FORMAT = 0
_REMEDY = "Use the config.json that belongs to these weights, or download them again."
METHOD = "bitsandbytes"
THRESHOLD = 6.0
_READ = {"quant_method", "load_in_8bit", "load_in_4bit", "_load_in_8bit", "_load_in_4bit"}
_RUNNING = ("llm_int8_", "bnb_4bit_")
NOTE = (
    "LLM.int8() multiplies large inputs in 16 bits and rounds the others to int8; here no input is "
    "rounded, which is more exact"
)


def tensor_shapes(shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a weight's tensors by suffix; `shape` is (out, in)."""
    return {CODES: shape, ROW_MAXIMA: (shape[0],), ORDER: ()}


def check_spec(spec: WeightSpec, shape: tuple[int, int]) -> None:
    """Raises UnsupportedError for a weight that this format cannot hold."""
    plain = spec.dtype == "int8" and spec.group_size is None and spec.symmetric
    if not plain or spec.activations in ("int8_row", "int8_static"):
        raise UnsupportedError(
            "bitsandbytes holds int8 rows with symmetric scales, for inputs as they are",
            seen=spec.name,
            remedy="Convert to compressed-tensors, or compress the original with llm-int8.",
        )


def encode(weight: GridWeight) -> dict[str, StoredTensor]:
    """Returns a weight's tensors by suffix, from which `decode` makes the same weight. Raises
    UnsupportedError for codes of -128, which bitsandbytes never writes, and for scales that no row
    maximum gives."""
    check_spec(weight.spec, weight.shape)
    assert weight.scales_OG is not None
    codes_OI = cast("npt.NDArray[np.uint8]", weight.values_OI)
    # The difference wraps around within a byte; its bits are the signed code.
    signed_OI = (codes_OI - np.uint8(128)).view(np.int8)
    if signed_OI.size and signed_OI.min() < -_LARGEST_CODE:
        raise UnsupportedError(
            "bitsandbytes' codes end at -127",
            seen=f"{int((signed_OI < -_LARGEST_CODE).sum())} codes of -128",
            remedy="Compress the original with llm-int8, or write compressed-tensors.",
        )
    return {
        CODES: StoredTensor(dtype="I8", array=signed_OI),
        ROW_MAXIMA: StoredTensor(dtype="F32", array=_row_maxima(weight.scales_OG[:, 0])),
        ORDER: StoredTensor(dtype="U8", array=np.array(_ROW_FORMAT, np.uint8)),
    }


def _row_maxima(scales_O: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Returns the row maxima that `decode` turns back into these scales. 127 times a bf16 or fp16
    number is exact in fp32. Other scales that were a maximum over 127 have that maximum next to
    the rounded product."""
    with np.errstate(over="ignore"):
        product_O = scales_O * np.float32(_LARGEST_CODE)
        found_O = product_O.copy()
        for towards in (0.0, np.inf):
            neighbour_O = np.nextafter(product_O, np.float32(towards))
            wrong_O = _scales(found_O) != scales_O
            found_O[wrong_O] = neighbour_O[wrong_O]
    wrong_O = _scales(found_O) != scales_O
    if wrong_O.any():
        raise UnsupportedError(
            "scales are not each row's largest magnitude / 127 in fp32, which is how bitsandbytes "
            "has them",
            seen=f"{int(wrong_O.sum())} of {wrong_O.size} scales, {scales_O[wrong_O][0]} among "
            "them",
            remedy="Compress the original with llm-int8, or write compressed-tensors.",
        )
    return found_O


def _scales(maxima_O: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return maxima_O / np.float32(_LARGEST_CODE)


def decode(tensors: Mapping[str, StoredTensor]) -> GridWeight:
    """Returns the weight from a module's tensors, by suffix. Raises CheckpointError for missing or
    contradictory tensors, UnsupportedError for an older order of the codes."""
    codes = _take(tensors, CODES, "I8", 2)
    maxima = _take(tensors, ROW_MAXIMA, "F32", 1)
    form = int(_take(tensors, ORDER, "U8", 0).array)
    if form != _ROW_FORMAT:
        raise UnsupportedError(
            "the int8 codes are in an order that bitsandbytes no longer writes",
            seen=f"{ORDER} {form}",
            remedy="Load and save the model once with a current bitsandbytes.",
        )
    maxima_O = cast("npt.NDArray[np.float32]", maxima.array)
    if maxima.shape[0] != codes.shape[0]:
        raise _bad(
            ROW_MAXIMA, "does not have one value per row", f"{maxima.shape} for {codes.shape}"
        )
    if not (np.isfinite(maxima_O).all() and (maxima_O >= 0).all()):
        raise _bad(ROW_MAXIMA, "holds values that are not magnitudes", "negative or not finite")
    signed_OI = cast("npt.NDArray[np.int8]", codes.array)
    return GridWeight(
        spec=SPEC,
        values_OI=signed_OI.view(np.uint8) + np.uint8(128),
        scales_OG=_scales(maxima_O)[:, None],
        scale_dtype="fp32",
    )


def _take(
    tensors: Mapping[str, StoredTensor], suffix: str, dtype: str, num_dimensions: int
) -> StoredTensor:
    if suffix not in tensors:
        raise _bad(suffix, "is missing", ", ".join(sorted(tensors)) or "no tensors")
    tensor = tensors[suffix]
    if tensor.dtype != dtype or len(tensor.shape) != num_dimensions:
        wanted = f"{dtype} of {num_dimensions} dimensions"
        seen = f"{tensor.dtype} {list(tensor.shape)}, expected {wanted}"
        raise _bad(suffix, "has the wrong dtype or shape", seen)
    return tensor


def _bad(suffix: str, problem: str, seen: object) -> CheckpointError:
    return CheckpointError(
        f"tensor {suffix} of an int8 weight of bitsandbytes {problem}", seen=seen, remedy=_REMEDY
    )


class Int8Form:
    """The stored form of a module (formats/stored/stored_form.py); all modules have the same."""

    spec: WeightSpec = SPEC
    name: str = SPEC.name
    suffixes: tuple[str, ...] = tuple(tensor_shapes((1, 1)))
    notes: tuple[str, ...] = (NOTE,)

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        return tensor_shapes(shape)

    def settle(self, tensors: Tensors, shape: tuple[int, int]) -> "Int8Form":
        return self

    def decode(self, tensors: Tensors) -> GridWeight:
        return decode(tensors)


@dataclass(frozen=True, kw_only=True)
class BitsAndBytesConfig:
    """Tells which linear modules are stored as codes (formats/stored/stored_form.py): those with
    row maxima in the files."""

    kv: ClassVar[KVScheme] = NO_SCHEME

    tensor_names: Collection[str]
    notes: tuple[str, ...] = ()

    def form_for_embedding(self, module: str) -> None:
        return None

    def form_for(self, module: str) -> Int8Form | None:
        return Int8Form() if f"{module}.{ROW_MAXIMA}" in self.tensor_names else None


def read_bitsandbytes(
    config: Mapping[str, object], tensor_names: Collection[str]
) -> BitsAndBytesConfig:
    """Parses the section. Raises UnsupportedError for the 4-bit forms, CheckpointError for a
    folder without codes. The library's other fields concern the 4-bit forms or how the library
    runs the model."""
    if config.get("load_in_8bit") is not True or config.get("load_in_4bit"):
        seen = {name: config.get(name) for name in ("load_in_8bit", "load_in_4bit")}
        raise unsupported("load_in_8bit", seen, "Known is 8 bits.")
    unknown = pass_over_others(config, {*_READ, *(n for n in config if n.startswith(_RUNNING))})
    check_any_codes(tensor_names, ROW_MAXIMA, METHOD)
    return BitsAndBytesConfig(tensor_names=tensor_names, notes=note_passed_over(unknown))


def write_bitsandbytes(layout: Layout[WeightSpec]) -> dict[str, object]:
    """Builds the section of config.json. All coded modules have one form, so only modules in
    floats are named."""
    return {
        "quant_method": METHOD,
        "load_in_8bit": True,
        "load_in_4bit": False,
        "llm_int8_threshold": THRESHOLD,
        "llm_int8_skip_modules": list(layout.all_floats),
        "llm_int8_has_fp16_weight": False,
        "llm_int8_enable_fp32_cpu_offload": False,
    }


FORMAT = StoredFormat(
    method=METHOD,
    holds=WeightSpec,
    read=read_bitsandbytes,
    check=check_spec,
    encode=encode,
    section=write_bitsandbytes,
)
