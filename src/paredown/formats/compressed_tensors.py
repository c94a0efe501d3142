"""compressed-tensors: quantized weights in safetensors, as vLLM and Transformers load them
(https://github.com/vllm-project/compressed-tensors).

A module's tensors, after its name and a dot, in form "pack-quantized" (integers):
    weight_packed      I32 [O, ceil(I * b / 32)]   unsigned codes, see formats/bits.py
    weight_scale       float [O, G]
    weight_shape       I64 [2]                     O, I
    weight_zero_point  I32 [ceil(O * b / 32), G]   asymmetric only; packed down the columns
in "int-quantized" (integers whose inputs are integers too) and "float-quantized" (fp8):
    weight             I8 (signed codes) or F8_E4M3 [O, I]
    weight_scale       float [O, G]
    input_scale        float [1]                   static activations only
"""

from collections.abc import Mapping
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError
from paredown.formats.bits import num_words, pack_bits, unpack_bits
from paredown.formats.floating import STORED_FLOATS
from paredown.formats.floating import cast as cast_floats
from paredown.formats.fp8 import has_nan
from paredown.formats.integer import group_columns
from paredown.formats.tensor import StoredDType, StoredTensor
from paredown.formats.weight import Weight
from paredown.spec.weight import ScaleDType, WeightSpec

Form = Literal["pack-quantized", "int-quantized", "float-quantized"]

PACKED = "weight_packed"
PLAIN = "weight"
SCALE = "weight_scale"
SHAPE = "weight_shape"
ZERO_POINT = "weight_zero_point"
INPUT_SCALE = "input_scale"

_SCALE_DTYPES: dict[StoredDType, ScaleDType] = {
    stored: dtype for dtype, stored in STORED_FLOATS.items()
}


def form_of(spec: WeightSpec) -> Form:
    """As the library infers it: int-quantized where the inputs have a scheme of their own."""
    assert spec.is_quantized, spec.name
    if spec.dtype == "fp8":
        return "float-quantized"
    plain = spec.activations in ("int8_row", "int8_static")
    return "int-quantized" if plain else "pack-quantized"


def tensor_shapes(spec: WeightSpec, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """The tensors of a weight of (out, in) `shape`, by what follows the module's name. Raises
    UnsupportedError when its groups do not fit."""
    num_rows, num_columns = shape
    if not spec.is_quantized:
        return {PLAIN: shape}
    num_groups = num_columns // group_columns(spec, num_columns)
    shapes: dict[str, tuple[int, ...]] = {SCALE: (num_rows, num_groups)}
    if form_of(spec) != "pack-quantized":
        shapes[PLAIN] = shape
    else:
        shapes[PACKED] = (num_rows, num_words(num_columns, spec.bits))
        shapes[SHAPE] = (2,)
        if not spec.symmetric:
            shapes[ZERO_POINT] = (num_words(num_rows, spec.bits), num_groups)
    if spec.activations == "int8_static":
        shapes[INPUT_SCALE] = (1,)
    return shapes


def tensor_suffixes(spec: WeightSpec) -> tuple[str, ...]:
    """What a module's name is followed by, for each tensor of a weight."""
    return tuple(tensor_shapes(spec, (1, spec.group_size or 1)))


def encode(weight: Weight) -> dict[str, StoredTensor]:
    """A quantized weight's tensors, by suffix."""
    spec = weight.spec
    assert weight.scales_OG is not None
    codes_OI = cast("npt.NDArray[np.uint8]", weight.values_OI)
    tensors = {SCALE: cast_floats(weight.scales_OG, weight.scale_dtype).tensor}
    if spec.dtype == "fp8":
        tensors[PLAIN] = StoredTensor(dtype="F8_E4M3", array=codes_OI)
    elif form_of(spec) == "int-quantized":
        # The difference wraps around within a byte, and its bits are the signed code's.
        signed_OI = (codes_OI - np.uint8(1 << (spec.bits - 1))).view(np.int8)
        tensors[PLAIN] = StoredTensor(dtype="I8", array=signed_OI)
    else:
        tensors[PACKED] = StoredTensor(dtype="I32", array=pack_bits(codes_OI, spec.bits))
        tensors[SHAPE] = StoredTensor(dtype="I64", array=np.array(weight.shape, np.int64))
    if weight.zero_points_OG is not None:
        words_GW = pack_bits(np.ascontiguousarray(weight.zero_points_OG.T), spec.bits)
        tensors[ZERO_POINT] = StoredTensor(dtype="I32", array=np.ascontiguousarray(words_GW.T))
    if weight.input_scale is not None:
        scale = np.array([weight.input_scale], np.float32)
        tensors[INPUT_SCALE] = cast_floats(scale, weight.scale_dtype).tensor
    return tensors


def decode(tensors: Mapping[str, StoredTensor], spec: WeightSpec) -> Weight:
    """The weight from a module's tensors, by suffix. Raises CheckpointError for tensors that are
    missing or contradict each other."""
    shape = _read_shape(tensors, PLAIN if form_of(spec) != "pack-quantized" else SHAPE)
    if spec.group_size is not None and shape[1] % spec.group_size != 0:
        seen = f"{shape[1]} columns in groups of {spec.group_size}"
        raise _bad(SCALE, "does not fit the group size in config.json", seen)
    shapes = tensor_shapes(spec, shape)
    scale = _take(tensors, SCALE, tuple(_SCALE_DTYPES), shapes[SCALE])
    scales_OG = scale.to_float32()
    if not np.isfinite(scales_OG).all():
        raise _bad(SCALE, "holds values that are not finite numbers", "NaN or infinity")
    zeros_OG = None
    if not spec.symmetric:
        words_WG = _words(_take(tensors, ZERO_POINT, ("I32",), shapes[ZERO_POINT]))
        zeros_GO = unpack_bits(np.ascontiguousarray(words_WG.T), spec.bits, shape[0])
        zeros_OG = np.ascontiguousarray(zeros_GO.T)
    return Weight(
        spec=spec,
        values_OI=_read_codes(tensors, spec, shape),
        scales_OG=scales_OG,
        zero_points_OG=zeros_OG,
        scale_dtype=_SCALE_DTYPES[scale.dtype],
        input_scale=_read_input_scale(tensors) if INPUT_SCALE in shapes else None,
    )


def _read_codes(
    tensors: Mapping[str, StoredTensor], spec: WeightSpec, shape: tuple[int, int]
) -> npt.NDArray[np.uint8]:
    if form_of(spec) == "pack-quantized":
        packed = _take(tensors, PACKED, ("I32",), tensor_shapes(spec, shape)[PACKED])
        return unpack_bits(_words(packed), spec.bits, shape[1])
    if spec.dtype == "fp8":
        codes_OI = _take(tensors, PLAIN, ("F8_E4M3",), shape).array.astype(np.uint8, copy=False)
        if has_nan(codes_OI):
            raise _bad(PLAIN, "holds values that are not numbers", "NaN (0x7f or 0xff)")
        return codes_OI
    signed_OI = _take(tensors, PLAIN, ("I8",), shape).array
    half = 1 << (spec.bits - 1)
    if signed_OI.min() < -half or signed_OI.max() >= half:
        seen = f"{signed_OI.min()} to {signed_OI.max()}"
        raise _bad(PLAIN, f"holds codes that do not have {spec.bits} bits", seen)
    return signed_OI.view(np.uint8) + np.uint8(half)


def _read_shape(tensors: Mapping[str, StoredTensor], suffix: str) -> tuple[int, int]:
    if suffix == SHAPE:
        values = _take(tensors, SHAPE, ("I64", "I32"), (2,)).array.tolist()
    else:
        values = list(_present(tensors, suffix).shape)
    if len(values) != 2 or min(values) <= 0:
        raise _bad(suffix, "is not, or has not, the shape of a weight", values)
    return int(values[0]), int(values[1])


def _read_input_scale(tensors: Mapping[str, StoredTensor]) -> float:
    values = _take(tensors, INPUT_SCALE, tuple(_SCALE_DTYPES), (1,)).to_float32()
    scale = float(values[0])
    if not 0 < scale < float("inf"):
        raise _bad(INPUT_SCALE, "is not a finite number above zero", scale)
    return scale


def _present(tensors: Mapping[str, StoredTensor], suffix: str) -> StoredTensor:
    if suffix not in tensors:
        raise _bad(suffix, "is missing", ", ".join(sorted(tensors)) or "no tensors")
    return tensors[suffix]


def _take(
    tensors: Mapping[str, StoredTensor],
    suffix: str,
    dtypes: tuple[StoredDType, ...],
    shape: tuple[int, ...],
) -> StoredTensor:
    tensor = _present(tensors, suffix)
    if tensor.dtype not in dtypes or tensor.shape != shape:
        wanted = f"{' or '.join(dtypes)} {list(shape)}"
        seen = f"{tensor.dtype} {list(tensor.shape)}, expected {wanted}"
        raise _bad(suffix, "has the wrong dtype or shape", seen)
    return tensor


def _words(tensor: StoredTensor) -> npt.NDArray[np.int32]:
    return cast("npt.NDArray[np.int32]", tensor.array)


def _bad(suffix: str, problem: str, seen: object) -> CheckpointError:
    return CheckpointError(
        f"tensor {suffix} of a compressed weight {problem}",
        seen=seen,
        remedy="Use the config.json that belongs to these weights, or download them again.",
    )
