"""compressed-tensors: quantized weights in safetensors, as vLLM and Transformers load them
(https://github.com/vllm-project/compressed-tensors).

A module's tensors, after its name and a dot, in form "pack-quantized" (integers):
    weight_packed      I32 [O, ceil(I * b / 32)]   unsigned codes, see formats/bits.py
    weight_scale       float [O, G]
    weight_shape       I64 [2]                     O, I
    weight_zero_point  I32 [ceil(O * b / 32), G]   asymmetric only; packed down the columns
    weight_g_idx       I32 [I]                     act-order "group" only: the group of each column
in "int-quantized" (integers whose inputs have a scheme too), "float-quantized" (fp8) and
"naive-quantized" (either):
    weight             I8 (signed codes) or F8_E4M3 [O, I]
    weight_scale       float [O, G]
    weight_zero_point  I8 [O, G]                   asymmetric only; signed
and in all of them
    input_scale        float [1]                   static activations only
Scales may also be one for a tensor, [1], or one per block of r x c values, [ceil(O / r), I / c];
zero points then have their shape and are not packed. What we write has scales per row or group.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar, cast

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.bits import num_words, pack_bits, unpack_bits
from paredown.formats.e4m3 import has_nan
from paredown.formats.floating import cast as cast_floats
from paredown.formats.grid_weight import GridWeight
from paredown.formats.stored.column_order import settle_order
from paredown.formats.stored.stored_form import StoredForm
from paredown.formats.stored.tensor_checks import (
    Tensors,
    bad_tensor,
    present,
    take,
    take_scales,
    take_words,
)
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.spec.weight import WeightSpec

Number = TypeVar("Number", bound=np.generic)
Form = Literal["pack-quantized", "int-quantized", "float-quantized", "naive-quantized"]

PACKED = "weight_packed"
PLAIN = "weight"
SCALE = "weight_scale"
SHAPE = "weight_shape"
ZERO_POINT = "weight_zero_point"
ORDER = "weight_g_idx"
INPUT_SCALE = "input_scale"


@dataclass(frozen=True, kw_only=True)
class CompressedForm:
    """The stored form of one module (formats/stored/stored_form.py).

    `block`            rows and columns that share a scale; None: as the group size of `spec` says
    `per_tensor`       one scale for all
    `has_input_scale`  whether an input scale is stored; it is read for int8_static activations,
                       else dropped
    `has_order`        whether there is a weight_g_idx
    """

    spec: WeightSpec
    form: Form
    block: tuple[int, int] | None = None
    per_tensor: bool = False
    has_input_scale: bool = False
    has_order: bool = False
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        return tuple(self.tensor_shapes((1, self.spec.group_size or 1)))

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        num_rows, num_columns = shape
        shapes: dict[str, tuple[int, ...]] = {SCALE: self._scale_shape(shape)}
        if self.is_packed:
            shapes[PACKED] = (num_rows, num_words(num_columns, self.spec.bits))
            shapes[SHAPE] = (2,)
        else:
            shapes[PLAIN] = shape
        if not self.spec.symmetric:
            shapes[ZERO_POINT] = shapes[SCALE]
            if self._packs_zeros:
                shapes[ZERO_POINT] = (num_words(num_rows, self.spec.bits), shapes[SCALE][1])
        if self.has_order:
            shapes[ORDER] = (num_columns,)
        if self.has_input_scale:
            shapes[INPUT_SCALE] = (1,)
        return shapes

    def settle(self, tensors: Tensors, shape: tuple[int, int]) -> StoredForm:
        if self.is_packed and (stored := _read_shape(tensors)) != shape:
            seen = f"{list(stored)}, config.json asks for {list(shape)}"
            raise bad_tensor(SHAPE, "names the wrong shape", seen)
        if not self.is_packed and tensors[PLAIN].dtype in STORED_DTYPES:
            raise stored_in_floats(PLAIN)
        if not self.has_order:
            return self
        return settle_order(self, tensors, suffix=ORDER, scale_suffix=SCALE, num_columns=shape[1])

    def decode(self, tensors: Tensors) -> GridWeight:
        if self.is_packed:
            shape = _read_shape(tensors)
        else:
            shape = _check_shape(PLAIN, list(present(tensors, PLAIN).shape))
        shapes = self.tensor_shapes(shape)
        scales, scale_dtype = take_scales(tensors, SCALE, shapes[SCALE])
        zeros_OG = None
        if not self.spec.symmetric:
            zeros_OG = self._read_zero_points(tensors, shape, shapes[ZERO_POINT])
        is_static = self.spec.activations == "int8_static"
        return GridWeight(
            spec=self.spec,
            values_OI=self._read_codes(tensors, shape),
            scales_OG=self._spread(scales, shape[0]),
            zero_points_OG=zeros_OG,
            scale_dtype=scale_dtype,
            input_scale=_read_input_scale(tensors) if is_static else None,
        )

    @property
    def is_packed(self) -> bool:
        return self.form == "pack-quantized"

    @property
    def _packs_zeros(self) -> bool:
        return self.is_packed and not self.per_tensor and self.block is None

    def _scale_shape(self, shape: tuple[int, int]) -> tuple[int, ...]:
        if self.per_tensor:
            return (1,)
        num_rows, num_columns = shape
        size = num_columns if self.spec.group_size is None else self.spec.group_size
        if num_columns % size:
            raise CheckpointError(
                "the group size in config.json does not divide the weight's columns",
                seen=f"{num_columns} columns in groups of {size}",
                remedy="Use the config.json that belongs to these weights.",
            )
        block_rows = 1 if self.block is None else self.block[0]
        return -(-num_rows // block_rows), num_columns // size

    def _spread(self, stored: npt.NDArray[Number], num_rows: int) -> npt.NDArray[Number]:
        """Returns the numbers of each row and group, from those of a tensor or a block."""
        if self.per_tensor:
            return np.repeat(stored.reshape(1, 1), num_rows, axis=0)
        if self.block is not None:
            return np.repeat(stored, self.block[0], axis=0)[:num_rows]
        return stored

    def _read_codes(self, tensors: Tensors, shape: tuple[int, int]) -> npt.NDArray[np.uint8]:
        if self.is_packed:
            words_OW = take_words(tensors, PACKED, self.tensor_shapes(shape)[PACKED])
            return unpack_bits(words_OW, self.spec.bits, shape[1])
        if self.spec.dtype == "fp8":
            codes_OI = take(tensors, PLAIN, ("F8_E4M3",), shape).array.astype(np.uint8, copy=False)
            if has_nan(codes_OI):
                raise bad_tensor(PLAIN, "holds values that are not numbers", "NaN (0x7f or 0xff)")
            return codes_OI
        return self._unsigned(tensors, PLAIN, shape)

    def _read_zero_points(
        self, tensors: Tensors, shape: tuple[int, int], stored: tuple[int, ...]
    ) -> npt.NDArray[np.uint8]:
        if not self._packs_zeros:
            return self._spread(self._unsigned(tensors, ZERO_POINT, stored), shape[0])
        words_GW = np.ascontiguousarray(take_words(tensors, ZERO_POINT, stored).T)
        return np.ascontiguousarray(unpack_bits(words_GW, self.spec.bits, shape[0]).T)

    def _unsigned(
        self, tensors: Tensors, suffix: str, shape: tuple[int, ...]
    ) -> npt.NDArray[np.uint8]:
        signed = take(tensors, suffix, ("I8",), shape).array
        half = 1 << (self.spec.bits - 1)
        if signed.min() < -half or signed.max() >= half:
            seen = f"{signed.min()} to {signed.max()}"
            raise bad_tensor(suffix, f"holds codes that do not have {self.spec.bits} bits", seen)
        return signed.view(np.uint8) + np.uint8(half)


def form_of(spec: WeightSpec) -> Form:
    """Returns the library's name for the form of such weights: int-quantized where the inputs have
    a scheme of their own. Integer steps have a scheme too but stay packed, so that tools that
    round no inputs load them as ordinary int4 groups."""
    assert spec.is_grid, spec.name
    if spec.dtype == "fp8":
        return "float-quantized"
    return "int-quantized" if spec.has_input_scheme and not spec.integer_steps else "pack-quantized"


def written_form(spec: WeightSpec) -> CompressedForm:
    """Returns the form in which `encode` stores a weight."""
    static = spec.activations == "int8_static"
    return CompressedForm(spec=spec, form=form_of(spec), has_input_scale=static)


def encode(weight: GridWeight) -> dict[str, StoredTensor]:
    """Returns a quantized weight's tensors, by suffix."""
    spec = weight.spec
    assert weight.scales_OG is not None
    codes_OI = cast("npt.NDArray[np.uint8]", weight.values_OI)
    tensors = {SCALE: cast_floats(weight.scales_OG, weight.scale_dtype).tensor}
    is_packed = form_of(spec) == "pack-quantized"
    if spec.dtype == "fp8":
        tensors[PLAIN] = StoredTensor(dtype="F8_E4M3", array=codes_OI)
    elif not is_packed:
        tensors[PLAIN] = _signed(codes_OI, spec.bits)
    else:
        tensors[PACKED] = StoredTensor(dtype="I32", array=pack_bits(codes_OI, spec.bits))
        tensors[SHAPE] = StoredTensor(dtype="I64", array=np.array(weight.shape, np.int64))
    if weight.zero_points_OG is not None and is_packed:
        words_GW = pack_bits(np.ascontiguousarray(weight.zero_points_OG.T), spec.bits)
        tensors[ZERO_POINT] = StoredTensor(dtype="I32", array=np.ascontiguousarray(words_GW.T))
    elif weight.zero_points_OG is not None:
        tensors[ZERO_POINT] = _signed(weight.zero_points_OG, spec.bits)
    if weight.input_scale is not None:
        scale = np.array([weight.input_scale], np.float32)
        tensors[INPUT_SCALE] = cast_floats(scale, weight.scale_dtype).tensor
    return tensors


def stored_in_floats(name: str) -> UnsupportedError:
    """Returns the error for a weight that has scales but no codes."""
    return UnsupportedError(
        f"tensor {name} holds floats beside scales, not the codes that quantization_config names",
        seen="weights that were never stored compressed",
        remedy="Save the model again with save_compressed=True, or use the original.",
    )


def _signed(codes: npt.NDArray[np.uint8], bits: int) -> StoredTensor:
    """Converts to signed codes: the difference wraps around within a byte, and its bits are the
    signed code."""
    return StoredTensor(dtype="I8", array=(codes - np.uint8(1 << (bits - 1))).view(np.int8))


def _read_shape(tensors: Tensors) -> tuple[int, int]:
    return _check_shape(SHAPE, take(tensors, SHAPE, ("I64", "I32"), (2,)).array.tolist())


def _check_shape(suffix: str, values: list[int]) -> tuple[int, int]:
    if len(values) != 2 or min(values) <= 0:
        raise bad_tensor(suffix, "is not, or has not, the shape of a weight", values)
    return int(values[0]), int(values[1])


def _read_input_scale(tensors: Tensors) -> float:
    values = take(tensors, INPUT_SCALE, tuple(STORED_DTYPES), (1,)).to_float32()
    scale = float(values[0])
    if not 0 < scale < float("inf"):
        raise bad_tensor(INPUT_SCALE, "is not a finite number above zero", scale)
    return scale
