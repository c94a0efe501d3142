"""GGUF's block formats (https://github.com/ggml-org/llama.cpp, ggml-common.h): rows of blocks, each
with its own scale. 32 columns, d and m fp16:

    Q4_0  d, 16 bytes            w = (q - 8) d     byte j holds q[j] and, above it, q[j + 16]
    Q4_1  d, m, 16 bytes         w = q d + m
    Q5_0  d, 4, 16 bytes         w = (q - 16) d    the fifth bits of all q in the first four bytes
    Q5_1  d, m, 4, 16 bytes      w = q d + m
    Q8_0  d, 32 signed bytes     w = q d
and super-blocks of 256 columns, s and t of 6 or 8 bits with every 32 or 16 columns:
    Q4_K  d, m, 12, 128 bytes    w = q (d s) - m t
    Q6_K  128, 64, 16 bytes, d   w = (q - 32) (d s)

Q4_0, Q5_0 and Q8_0 are symmetric groups of 32 and become codes; d may be negative. What has a
minimum of its own or groups of 16 is dequantized, with the roundings of llama.cpp.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.floating import check_finite
from paredown.formats.integer import group_columns
from paredown.formats.weight import Weight
from paredown.spec.weight import WeightDType, WeightSpec

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

BLOCK_COLUMNS = 32
_SCALE_BYTES = 2
# Values quantized at once: bounds the float temporaries to some tens of megabytes.
_CHUNK_VALUES = 1 << 21


@dataclass(frozen=True, kw_only=True)
class BlockFormat:
    """How a tensor's rows are stored: `block_bytes` for every `block_columns`. `spec` is that of
    the Weight that `decode` gives; `is_exact` where its codes are those of the file."""

    name: str
    type_id: int
    block_columns: int
    block_bytes: int
    spec: WeightSpec
    is_exact: bool = True

    @property
    def is_quantized(self) -> bool:
        return self.block_columns > 1

    def row_bytes(self, num_columns: int) -> int:
        return num_columns // self.block_columns * self.block_bytes


def _codes(name: str, type_id: int, block_bytes: int, dtype: WeightDType) -> BlockFormat:
    spec = WeightSpec(dtype=dtype, group_size=BLOCK_COLUMNS)
    return BlockFormat(
        name=name,
        type_id=type_id,
        block_columns=BLOCK_COLUMNS,
        block_bytes=block_bytes,
        spec=spec,
    )


def _floats(
    name: str, type_id: int, block: tuple[int, int], dtype: WeightDType = "fp32"
) -> BlockFormat:
    return BlockFormat(
        name=name,
        type_id=type_id,
        block_columns=block[0],
        block_bytes=block[1],
        spec=WeightSpec(dtype=dtype),
        is_exact=block[0] == 1,
    )


F32 = _floats("F32", 0, (1, 4))
F16 = _floats("F16", 1, (1, 2), "fp16")
BF16 = _floats("BF16", 30, (1, 2), "bf16")
Q4_0 = _codes("Q4_0", 2, 18, "int4")
Q5_0 = _codes("Q5_0", 6, 22, "int5")
Q8_0 = _codes("Q8_0", 8, 34, "int8")

BLOCK_FORMATS: dict[str, BlockFormat] = {
    one.name: one
    for one in (
        F32,
        F16,
        BF16,
        Q4_0,
        Q5_0,
        Q8_0,
        _floats("Q4_1", 3, (32, 20)),
        _floats("Q5_1", 7, (32, 24)),
        _floats("Q4_K", 12, (256, 144)),
        _floats("Q6_K", 14, (256, 210)),
    )
}
# The others that llama.cpp has, so that a refusal can name them.
OTHER_TYPES: dict[int, str] = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 13: "Q5_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS",
    18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8",
    25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
    39: "MXFP4", 40: "NVFP4",
}  # fmt: skip


def decode(rows_OB: Bytes, block: BlockFormat) -> Weight:
    """The weight in a tensor's rows, [O, bytes]. Raises CheckpointError for scales or floats that
    are not finite numbers."""
    if not block.is_quantized:
        dtype = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16}[block.spec.dtype]
        floats_OI = np.ascontiguousarray(rows_OB).view(dtype)
        # A file's alignment may be less than its numbers'.
        floats_OI = floats_OI if floats_OI.flags.aligned else floats_OI.copy()
        return Weight(spec=block.spec, values_OI=floats_OI)
    num_rows = len(rows_OB)
    if not block.spec.is_quantized:
        dequantize = _DEQUANTIZE[block.name]
        with np.errstate(invalid="ignore", over="ignore"):
            parts = [
                dequantize(blocks.reshape(-1, block.block_bytes)) for blocks in _chunks(rows_OB)
            ]
        values = np.concatenate([part.reshape(-1) for part in parts]).reshape(num_rows, -1)
        check_finite(values)
        return Weight(spec=block.spec, values_OI=values)
    blocks_NB = np.ascontiguousarray(rows_OB).reshape(-1, block.block_bytes)
    scales = _half(blocks_NB, 0).reshape(num_rows, -1)
    if not np.isfinite(scales).all():
        raise CheckpointError(
            f"a {block.name} tensor holds scales that are not finite numbers",
            seen="NaN or infinity",
            remedy="Download the file again.",
        )
    codes_OI = _UNPACK[block.name](blocks_NB).reshape(num_rows, -1)
    return Weight(spec=block.spec, values_OI=codes_OI, scales_OG=scales, scale_dtype="fp16")


def encode(weight: Weight) -> tuple[BlockFormat, Bytes]:
    """The format that holds a weight exactly, and its rows, [O, bytes]. Raises UnsupportedError for
    a weight that none can hold."""
    block = exact_format(weight.spec)
    if not weight.spec.is_quantized:
        return block, np.ascontiguousarray(weight.values_OI).view(np.uint8)
    assert weight.scales_OG is not None
    halves = _storable_halves(weight.scales_OG)
    codes_NC = np.asarray(weight.values_OI, np.uint8).reshape(-1, BLOCK_COLUMNS)
    parts = [np.ascontiguousarray(halves).reshape(-1, 1).view(np.uint8)]
    if block is Q4_0:
        half = BLOCK_COLUMNS // 2
        parts.append(codes_NC[:, :half] | codes_NC[:, half:] << np.uint8(4))
    else:
        # The difference wraps around within a byte, and its bits are the signed code's.
        parts.append(codes_NC - np.uint8(128))
    return block, np.concatenate(parts, axis=1).reshape(len(weight.values_OI), -1)


def exact_format(spec: WeightSpec) -> BlockFormat:
    """Raises UnsupportedError for a spec that no format here can hold exactly."""
    for block in (F32, F16, BF16, Q4_0, Q8_0):
        same_form = (spec.dtype, spec.group_size, spec.symmetric)
        if same_form == (block.spec.dtype, block.spec.group_size, block.spec.symmetric):
            return block
    raise UnsupportedError(
        "GGUF has no format that holds these weights exactly",
        seen=spec.name,
        remedy="It holds fp32, fp16, bf16, int4-g32 (Q4_0) and int8 in groups of 32 (Q8_0).",
    )


def quantize_q4_0(values_OI: Floats) -> Weight:
    """[O, I] to Q4_0 as llama.cpp's quantize_row_q4_0_ref does: d is the value of largest
    magnitude over -8, q = min(15, int(x / d + 8.5)). Raises as `quantize_q8_0`."""
    return _quantize(values_OI, Q4_0, _q4_0_codes)


def quantize_q8_0(values_OI: Floats) -> Weight:
    """[O, I] to Q8_0 as llama.cpp's quantize_row_q8_0_ref does: d = max |x| / 127 and
    q = round(x / d), halves away from zero. Raises UnsupportedError when 32 does not divide the
    columns or a scale is beyond fp16, CheckpointError for values that are not finite."""
    return _quantize(values_OI, Q8_0, _q8_0_codes)


def _quantize(
    values_OI: Floats, block: BlockFormat, codes_of: Callable[[Floats], tuple[Floats, Bytes]]
) -> Weight:
    num_rows, num_columns = values_OI.shape
    group_columns(block.spec, num_columns)
    codes_OI = np.empty(values_OI.shape, np.uint8)
    scales_OG = np.empty((num_rows, num_columns // BLOCK_COLUMNS), np.float32)
    chunk_rows = max(1, _CHUNK_VALUES // num_columns)
    for start in range(0, num_rows, chunk_rows):
        rows = slice(start, start + chunk_rows)
        chunk = np.ascontiguousarray(values_OI[rows], np.float32)
        check_finite(chunk)
        scales, codes = codes_of(chunk.reshape(-1, BLOCK_COLUMNS))
        codes_OI[rows] = codes.reshape(chunk.shape)
        with np.errstate(over="ignore"):
            halves = scales.astype(np.float16).astype(np.float32)
        if not np.isfinite(halves).all():
            raise UnsupportedError(
                f"{block.name} cannot hold weights this large: its scales are fp16",
                seen=f"a scale of {np.abs(scales).max():.4g}, at most {np.finfo(np.float16).max}",
                remedy="Write the file in bf16.",
            )
        scales_OG[rows] = halves.reshape(len(chunk), -1)
    return Weight(spec=block.spec, values_OI=codes_OI, scales_OG=scales_OG, scale_dtype="fp16")


def _q4_0_codes(values_NC: Floats) -> tuple[Floats, Bytes]:
    largest = np.abs(values_NC).argmax(axis=1, keepdims=True)
    d = np.take_along_axis(values_NC, largest, axis=1) / np.float32(-8)
    steps = values_NC * _inverse(d) + np.float32(8.5)
    return d, np.minimum(steps.astype(np.uint8), 15)


def _q8_0_codes(values_NC: Floats) -> tuple[Floats, Bytes]:
    d = np.abs(values_NC).max(axis=1, keepdims=True) / np.float32(127)
    steps = values_NC * _inverse(d)
    magnitudes = np.abs(steps)
    whole = np.floor(magnitudes)
    rounded = np.copysign(whole + (magnitudes - whole >= np.float32(0.5)), steps)
    return d, (rounded + np.float32(128)).astype(np.uint8)


def _inverse(d: Floats) -> Floats:
    """1 / d, and 0 where that is infinite: llama.cpp's codes of values so small are undefined."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _storable_halves(scales_OG: Floats) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = scales_OG.astype(np.float16)
    changed = halves.astype(np.float32) != scales_OG
    if changed.any():
        raise UnsupportedError(
            "GGUF's block formats have fp16 scales, and these are not",
            seen=f"{float(scales_OG[changed][0])!r} and {int(changed.sum()) - 1} more scales",
            remedy="Quantize the original to GGUF (gguf-q4_0, gguf-q8_0) instead.",
        )
    return halves


def _chunks(rows_OB: Bytes) -> list[Bytes]:
    chunk_rows = max(1, _CHUNK_VALUES // max(1, rows_OB.shape[1]))
    return [rows_OB[start : start + chunk_rows] for start in range(0, len(rows_OB), chunk_rows)]


def _half(blocks_NB: Bytes, start: int) -> Floats:
    """The fp16 number at byte `start` of each block, [N, 1]."""
    halves = np.ascontiguousarray(blocks_NB[:, start : start + _SCALE_BYTES]).view(np.float16)
    return halves.astype(np.float32)


def _nibbles(octets_NB: Bytes) -> Bytes:
    """Low halves of all bytes, then the high ones."""
    return np.concatenate([octets_NB & np.uint8(15), octets_NB >> np.uint8(4)], axis=1)


def _fifth_bits(octets_N4: Bytes) -> Bytes:
    return np.unpackbits(octets_N4, axis=1, bitorder="little") << np.uint8(4)


def _dequantize_q4_1(blocks_NB: Bytes) -> Floats:
    d, m = _half(blocks_NB, 0), _half(blocks_NB, 2)
    return _nibbles(blocks_NB[:, 4:]).astype(np.float32) * d + m


def _dequantize_q5_1(blocks_NB: Bytes) -> Floats:
    d, m = _half(blocks_NB, 0), _half(blocks_NB, 2)
    codes = _nibbles(blocks_NB[:, 8:]) | _fifth_bits(blocks_NB[:, 4:8])
    return codes.astype(np.float32) * d + m


def _dequantize_q4_k(blocks_NB: Bytes) -> Floats:
    """Eight groups of 32; two of them share 32 bytes, one in the low halves."""
    d, m = _half(blocks_NB, 0), _half(blocks_NB, 2)
    low_s, low_t, high = (blocks_NB[:, start : start + 4] for start in (4, 8, 12))
    # Six bits each: groups 0 to 3 whole, 4 to 7 in four bits here and two in the tops of those.
    s = np.concatenate([low_s & 63, (high & 15) | (low_s >> 6 << 4)], axis=1)
    t = np.concatenate([low_t & 63, (high >> 4) | (low_t >> 6 << 4)], axis=1)
    pairs = blocks_NB[:, 16:].reshape(-1, 4, 32)
    codes_NGC = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)
    scale, minimum = d * s.astype(np.float32), m * t.astype(np.float32)
    return codes_NGC.astype(np.float32) * scale[:, :, None] - minimum[:, :, None]


def _dequantize_q6_k(blocks_NB: Bytes) -> Floats:
    """Two halves of 128 columns, each in four runs of 32: low bits of runs 0 and 2 share 32 bytes,
    those of 1 and 3 the next; the two high bits of all four share a byte. Groups of 16."""
    low = blocks_NB[:, :128].reshape(-1, 2, 64)
    high = blocks_NB[:, 128:192].reshape(-1, 2, 1, 32)
    low_bits = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
    codes: Bytes = (low_bits | ((high >> shifts & 3) << 4)).reshape(-1, 16, 16)
    s: Floats = np.ascontiguousarray(blocks_NB[:, 192:208]).view(np.int8).astype(np.float32)
    scale = _half(blocks_NB, 208) * s
    values: Floats = (codes.astype(np.float32) - np.float32(32)) * scale[:, :, None]
    return values


_UNPACK: dict[str, Callable[[Bytes], Bytes]] = {
    "Q4_0": lambda blocks_NB: _nibbles(blocks_NB[:, 2:]),
    "Q5_0": lambda blocks_NB: _nibbles(blocks_NB[:, 6:]) | _fifth_bits(blocks_NB[:, 2:6]),
    "Q8_0": lambda blocks_NB: blocks_NB[:, 2:] + np.uint8(128),
}
_DEQUANTIZE: dict[str, Callable[[Bytes], Floats]] = {
    "Q4_1": _dequantize_q4_1,
    "Q5_1": _dequantize_q5_1,
    "Q4_K": _dequantize_q4_k,
    "Q6_K": _dequantize_q6_k,
}
