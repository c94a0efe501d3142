"""bitsandbytes' int8 (LLM.int8(), arXiv 2208.07339) as Transformers stores `load_in_8bit` models
(https://github.com/bitsandbytes-foundation/bitsandbytes).

A module's tensors, after its name and a dot; O rows, I columns:
    weight         I8 [O, I]    signed codes from -127 to 127
    SCB            F32 [O]      each row's largest magnitude: a value is code * SCB / 127
    weight_format  U8 []        0, "row": the only form that is written today
"""

from collections.abc import Mapping
from typing import cast

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import Weight
from paredown.spec.weight import WeightSpec

CODES = "weight"
ROW_MAXIMA = "SCB"
FORMAT = "weight_format"
# A code stands for code * SCB / 127; the inputs are met unrounded, outliers or not.
SPEC = WeightSpec(dtype="int8", activations="fp32")
_LARGEST_CODE = 127
_ROW_FORMAT = 0
_REMEDY = "Use the config.json that belongs to these weights, or download them again."


def tensor_shapes(shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """The tensors of a weight of (out, in) `shape`, by what follows the module's name."""
    return {CODES: shape, ROW_MAXIMA: (shape[0],), FORMAT: ()}


def check_spec(spec: WeightSpec, shape: tuple[int, int]) -> None:
    """Raises UnsupportedError for a weight that has no form here."""
    plain = spec.dtype == "int8" and spec.group_size is None and spec.symmetric
    if not plain or spec.activations in ("int8_row", "int8_static"):
        raise UnsupportedError(
            "bitsandbytes holds int8 rows with symmetric scales, for inputs as they are",
            seen=spec.name,
            remedy="Convert to compressed-tensors, or compress the original with llm-int8.",
        )


def encode(weight: Weight) -> dict[str, StoredTensor]:
    """A weight's tensors, by suffix, which `decode` makes the same weight of. Raises
    UnsupportedError for codes of -128, which bitsandbytes never writes, and for scales that no
    largest magnitude gives."""
    check_spec(weight.spec, weight.shape)
    assert weight.scales_OG is not None
    codes_OI = cast("npt.NDArray[np.uint8]", weight.values_OI)
    # The difference wraps around within a byte, and its bits are the signed code's.
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
        FORMAT: StoredTensor(dtype="U8", array=np.array(_ROW_FORMAT, np.uint8)),
    }


def _row_maxima(scales_O: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """What `decode` divides back to these scales. 127 times a bf16 or fp16 number is an fp32
    number; of other scales, those that were a magnitude over 127 have it beside the rounded
    product."""
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
            "scales are no row's largest magnitude / 127 in fp32, which is how bitsandbytes has "
            "them",
            seen=f"{int(wrong_O.sum())} of {wrong_O.size} scales, {scales_O[wrong_O][0]} among "
            "them",
            remedy="Compress the original with llm-int8, or write compressed-tensors.",
        )
    return found_O


def _scales(maxima_O: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return maxima_O / np.float32(_LARGEST_CODE)


def decode(tensors: Mapping[str, StoredTensor]) -> Weight:
    """The weight from a module's tensors, by suffix. Raises CheckpointError for tensors that are
    missing or contradict each other, UnsupportedError for an older order of the codes."""
    codes = _take(tensors, CODES, "I8", 2)
    maxima = _take(tensors, ROW_MAXIMA, "F32", 1)
    form = int(_take(tensors, FORMAT, "U8", 0).array)
    if form != _ROW_FORMAT:
        raise UnsupportedError(
            "the int8 codes are in an order that bitsandbytes no longer writes",
            seen=f"{FORMAT} {form}",
            remedy="Load and save the model once with a current bitsandbytes.",
        )
    maxima_O = cast("npt.NDArray[np.float32]", maxima.array)
    if maxima.shape[0] != codes.shape[0]:
        raise _bad(ROW_MAXIMA, "has not one value per row", f"{maxima.shape} for {codes.shape}")
    if not (np.isfinite(maxima_O).all() and (maxima_O >= 0).all()):
        raise _bad(ROW_MAXIMA, "holds values that are no magnitudes", "negative or not finite")
    signed_OI = cast("npt.NDArray[np.int8]", codes.array)
    return Weight(
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
