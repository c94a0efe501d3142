"""CodebookWeight: a weight as sums of vectors from codebooks (AQLM, arXiv 2401.06118). NumPy only.

O output rows and I input columns are divided into patches of out_group_size x in_group_size
weights, A down the rows and J along the columns. The value of a patch is scale[a] times the sum of
codebooks[m, code[a, j, m]] over the M codebooks.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.errors import ConfigError, UnsupportedError
from paredown.formats.floating import round_to
from paredown.formats.grid_weight import GridWeight, float_weight
from paredown.spec.weight import ScaleDType

MAX_CODE_BITS = 16


@dataclass(frozen=True, kw_only=True)
class CodebookSpec:
    """The shape of the codebooks, and the dtype of their numbers and of the scales; all modules of
    a checkpoint share it. Raises ConfigError for one that the format cannot hold."""

    num_codebooks: int
    nbits_per_codebook: int
    in_group_size: int
    out_group_size: int = 1
    float_dtype: ScaleDType = "fp16"

    def __post_init__(self) -> None:
        sizes = ("num_codebooks", "nbits_per_codebook", "in_group_size", "out_group_size")
        for name in sizes:
            value = getattr(self, name)
            if value < 1 or (name == "nbits_per_codebook" and value > MAX_CODE_BITS):
                raise ConfigError(
                    f"{name} of additive codebooks is out of range",
                    seen=value,
                    remedy=f"Give at least 1, and at most {MAX_CODE_BITS} bits per codebook.",
                )

    @property
    def name(self) -> str:
        """The name as in the paper: 2x8-g8 is two codebooks of 8 bits on groups of 8 columns."""
        rows = "" if self.out_group_size == 1 else f"{self.out_group_size}x"
        return f"aqlm-{self.num_codebooks}x{self.nbits_per_codebook}-g{rows}{self.in_group_size}"

    @property
    def codebook_size(self) -> int:
        return 1 << self.nbits_per_codebook

    @property
    def code_bits(self) -> int:
        """The bits that a stored code takes, in whole bytes."""
        return 8 if self.nbits_per_codebook <= 8 else 16

    def num_patches(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Returns the patches down the rows and along the columns of a weight with `shape` (out,
        in). Raises UnsupportedError if they do not fill it."""
        num_rows, num_columns = shape
        if num_rows % self.out_group_size or num_columns % self.in_group_size:
            raise UnsupportedError(
                f"patches of {self.out_group_size} x {self.in_group_size} weights do not fill a "
                "linear layer",
                seen=f"{num_rows} rows, {num_columns} columns",
                remedy="Choose groups that divide rows and columns.",
            )
        return num_rows // self.out_group_size, num_columns // self.in_group_size

    def bits_per_weight(self, shape: tuple[int, int]) -> float:
        """Returns the stored bits per weight: codes in whole bytes, codebooks and scales in 16
        bits."""
        num_out, num_in = self.num_patches(shape)
        num_codes = num_out * num_in * self.num_codebooks
        vector = self.out_group_size * self.in_group_size
        num_floats = self.num_codebooks * self.codebook_size * vector + num_out
        return (num_codes * self.code_bits + num_floats * 16) / (shape[0] * shape[1])


@dataclass(frozen=True, kw_only=True)
class CodebookWeight:
    """The numbers of one linear layer.

    codes_AJM        uint16, each below 2^bits
    codebooks_MKRC   float32 [M, K, out_group, in_group], each representable in the spec's dtype
    scales_A         float32, each representable in the spec's dtype
    """

    spec: CodebookSpec
    codes_AJM: npt.NDArray[np.uint16]
    codebooks_MKRC: npt.NDArray[np.float32]
    scales_A: npt.NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        num_out, num_in, _ = self.codes_AJM.shape
        return num_out * self.spec.out_group_size, num_in * self.spec.in_group_size

    @property
    def input_scale(self) -> None:
        """Always None: inputs are not rounded."""
        return

    def with_input_scale(self, scale: float) -> "CodebookWeight":
        raise AssertionError("a weight in codebooks reads its inputs as they are")

    def dequantize(self) -> npt.NDArray[np.float32]:
        """Returns [O, I]. Vectors are added in the order of the codebooks and scaled in float32;
        the result is rounded to the spec's dtype."""
        patches_AJRC = self.codebooks_MKRC[0][self.codes_AJM[:, :, 0]]
        for m in range(1, self.spec.num_codebooks):
            patches_AJRC = patches_AJRC + self.codebooks_MKRC[m][self.codes_AJM[:, :, m]]
        patches_AJRC = patches_AJRC * self.scales_A[:, None, None, None]
        values_OI = np.ascontiguousarray(patches_AJRC.swapaxes(1, 2)).reshape(self.shape)
        return round_to(values_OI, self.spec.float_dtype)

    def at_work(self) -> npt.NDArray[np.float32]:
        """Returns [O, I]. No kernel takes the codes, so a layer multiplies with the rounded
        values."""
        return self.dequantize()

    def for_core(self) -> GridWeight:
        """Returns the values as floats of the spec's dtype."""
        return float_weight(self.dequantize(), self.spec.float_dtype)[0]
