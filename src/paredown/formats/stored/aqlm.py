"""AQLM (arXiv 2401.06118): a weight as sums of vectors from codebooks, laid out as the authors'
inference library and Transformers read it (https://github.com/Vahe1994/AQLM, inference_lib).

O output rows and I input columns are cut into patches of out_group_size x in_group_size weights;
A counts patches down the rows, J along the columns. A patch is scale[a] * sum over the M codebooks
of codebooks[m, code[a, j, m]]. A module's tensors, after its name and a dot:
    codes      I8 (I16 past 8 bits) [A, J, M]   the code's low bits, two's complement: 200 is -56
    codebooks  F16 [M, K, out_group, in_group]  K = 2^bits vectors, flattened patches
    scales     F16 [A, 1, 1, 1]
A code of fewer than 8 bits takes a byte all the same.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.errors import ConfigError, UnsupportedError
from paredown.formats.floating import cast, round_to
from paredown.formats.stored.tensor_checks import Tensors, bad_tensor, present, take, take_scales
from paredown.formats.tensor import StoredDType, StoredTensor
from paredown.spec.weight import ScaleDType

CODES = "codes"
CODEBOOKS = "codebooks"
SCALES = "scales"
MAX_CODE_BITS = 16


@dataclass(frozen=True, kw_only=True)
class AdditiveSpec:
    """The shape of the codebooks, one for all modules of a checkpoint. Raises ConfigError for one
    that the format cannot hold."""

    num_codebooks: int
    nbits_per_codebook: int
    in_group_size: int
    out_group_size: int = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1 or (name == "nbits_per_codebook" and value > MAX_CODE_BITS):
                raise ConfigError(
                    f"{name} of additive codebooks is out of range",
                    seen=value,
                    remedy=f"Give at least 1, and at most {MAX_CODE_BITS} bits per codebook.",
                )

    @property
    def name(self) -> str:
        """The paper's: 2x8-g8 is two codebooks of 8 bits on groups of 8 columns."""
        rows = "" if self.out_group_size == 1 else f"{self.out_group_size}x"
        return f"aqlm-{self.num_codebooks}x{self.nbits_per_codebook}-g{rows}{self.in_group_size}"

    @property
    def codebook_size(self) -> int:
        return 1 << self.nbits_per_codebook

    @property
    def code_dtype(self) -> StoredDType:
        return "I8" if self.nbits_per_codebook <= 8 else "I16"

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """The tensors of a weight of (out, in) `shape`, by what follows the module's name. Raises
        UnsupportedError when the groups do not divide it."""
        num_rows, num_columns = shape
        if num_rows % self.out_group_size or num_columns % self.in_group_size:
            raise UnsupportedError(
                f"patches of {self.out_group_size} x {self.in_group_size} weights do not fill a "
                "linear layer",
                seen=f"{num_rows} rows, {num_columns} columns",
                remedy="Choose groups that divide rows and columns.",
            )
        num_out, num_in = num_rows // self.out_group_size, num_columns // self.in_group_size
        return {
            CODES: (num_out, num_in, self.num_codebooks),
            CODEBOOKS: (
                self.num_codebooks,
                self.codebook_size,
                self.out_group_size,
                self.in_group_size,
            ),
            SCALES: (num_out, 1, 1, 1),
        }

    def bits_per_weight(self, shape: tuple[int, int]) -> float:
        """Stored bits over weights: codes in whole bytes, codebooks and scales in 16 bits."""
        sizes = {name: int(np.prod(dims)) for name, dims in self.tensor_shapes(shape).items()}
        code_bits = 8 if self.code_dtype == "I8" else 16
        floats = sizes[CODEBOOKS] + sizes[SCALES]
        return (sizes[CODES] * code_bits + floats * 16) / (shape[0] * shape[1])


@dataclass(frozen=True, kw_only=True)
class AdditiveWeight:
    """One linear layer's numbers.

    codes_AJM        uint16, each below 2^bits
    codebooks_MKRC   float32 [M, K, out_group, in_group], each representable in `float_dtype`
    scales_A         float32, each representable in `float_dtype`
    """

    spec: AdditiveSpec
    codes_AJM: npt.NDArray[np.uint16]
    codebooks_MKRC: npt.NDArray[np.float32]
    scales_A: npt.NDArray[np.float32]
    float_dtype: ScaleDType = "fp16"

    @property
    def shape(self) -> tuple[int, int]:
        num_out, num_in, _ = self.codes_AJM.shape
        return num_out * self.spec.out_group_size, num_in * self.spec.in_group_size


def dequantize(weight: AdditiveWeight) -> npt.NDArray[np.float32]:
    """[O, I]: vectors are added in the order of the codebooks and scaled in float32, and the value
    is rounded to `float_dtype`. No kernel takes the codes: this is what a layer runs with."""
    patches_AJRC = weight.codebooks_MKRC[0][weight.codes_AJM[:, :, 0]]
    for m in range(1, weight.spec.num_codebooks):
        patches_AJRC = patches_AJRC + weight.codebooks_MKRC[m][weight.codes_AJM[:, :, m]]
    patches_AJRC = patches_AJRC * weight.scales_A[:, None, None, None]
    values_OI = np.ascontiguousarray(patches_AJRC.swapaxes(1, 2)).reshape(weight.shape)
    return round_to(values_OI, weight.float_dtype)


def encode(weight: AdditiveWeight) -> dict[str, StoredTensor]:
    """A weight's tensors, by suffix."""
    spec = weight.spec
    shapes = spec.tensor_shapes(weight.shape)
    bits = spec.nbits_per_codebook
    signed_AJM = weight.codes_AJM.astype(np.int32)
    signed_AJM[signed_AJM >= 1 << (bits - 1)] -= 1 << bits
    dtype = np.int8 if spec.code_dtype == "I8" else np.int16
    codes = StoredTensor(dtype=spec.code_dtype, array=signed_AJM.astype(dtype))
    scales = weight.scales_A.reshape(shapes[SCALES])
    return {
        CODES: codes,
        CODEBOOKS: cast(weight.codebooks_MKRC, weight.float_dtype).tensor,
        SCALES: cast(scales, weight.float_dtype).tensor,
    }


def decode(tensors: Tensors, spec: AdditiveSpec) -> AdditiveWeight:
    """The weight from a module's tensors, by suffix. Raises CheckpointError for tensors that are
    missing or contradict each other."""
    num_out, num_in = _num_patches(tensors)
    shape = (num_out * spec.out_group_size, num_in * spec.in_group_size)
    shapes = spec.tensor_shapes(shape)
    stored = take(tensors, CODES, (spec.code_dtype,), shapes[CODES]).array.astype(np.int32)
    half = 1 << (spec.nbits_per_codebook - 1)
    if stored.min() < -half or stored.max() >= half:
        seen = f"{stored.min()} to {stored.max()}"
        problem = f"holds codes that do not have {spec.nbits_per_codebook} bits"
        raise bad_tensor(CODES, problem, seen)
    codebooks, codebook_dtype = take_scales(tensors, CODEBOOKS, shapes[CODEBOOKS])
    scales, float_dtype = take_scales(tensors, SCALES, shapes[SCALES])
    if float_dtype != codebook_dtype:
        raise bad_tensor(SCALES, "has another dtype than the codebooks", float_dtype)
    return AdditiveWeight(
        spec=spec,
        codes_AJM=(stored % spec.codebook_size).astype(np.uint16),
        codebooks_MKRC=codebooks,
        scales_A=scales.reshape(-1),
        float_dtype=float_dtype,
    )


def _num_patches(tensors: Tensors) -> tuple[int, int]:
    """Down the rows, along the columns."""
    shape = present(tensors, CODES).shape
    if len(shape) != 3 or 0 in shape:
        raise bad_tensor(CODES, "has not the shape of codes", list(shape))
    return shape[0], shape[1]
