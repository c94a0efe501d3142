"""Every type of block that llama.cpp writes, bit for bit as the gguf package reads it."""

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.errors import CheckpointError
from paredown.formats.floating import round_to
from paredown.formats.gguf import (
    fp4,
    iq1,
    iq2,
    iq4,
    q2_k,
    q3_k,
    q4_k,
    q5_k,
    q6_k,
    six_bits,
    with_minimum,
)
from paredown.formats.gguf.table import BLOCK_FORMATS
from paredown.spec.weight import WeightSpec

DEQUANTIZE = {
    "Q4_1": with_minimum.dequantize_q4_1,
    "Q5_1": with_minimum.dequantize_q5_1,
    "Q2_K": q2_k.dequantize,
    "Q3_K": q3_k.dequantize,
    "Q4_K": q4_k.dequantize,
    "Q5_K": q5_k.dequantize,
    "Q6_K": q6_k.dequantize,
    "IQ1_M": iq1.dequantize_m,
    "IQ2_XS": iq2.dequantize_xs,
    "IQ2_S": iq2.dequantize_s,
    "IQ4_NL": iq4.dequantize_nl,
    "IQ4_XS": iq4.dequantize_xs,
    "MXFP4": fp4.dequantize_mx,
    "NVFP4": fp4.dequantize_nv,
}
# They run as codes on a grid that takes more bits than the file, with its values.
ON_A_GRID = {
    "IQ1_S": "int5-g32",
    "IQ2_XXS": "int8-g32",
    "IQ3_XXS": "int8-g32",
    "IQ3_S": "int5-g32",
    "TQ1_0": "int2-g256",
    "TQ2_0": "int2-g256",
}
# Where the numbers that may be infinite stand; those of the others are bytes of any value.
HALVES = {
    "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,),
    "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "MXFP4": (), "NVFP4": (),
}  # fmt: skip


def random_blocks(name: str, num_blocks: int, seed: int) -> np.ndarray:
    """Any bytes, with scales that are numbers."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (num_blocks, BLOCK_FORMATS[name].block_bytes), np.uint8)
    for start in HALVES.get(name, (0,)):
        halves = rng.normal(size=(num_blocks, 1)).astype(np.float16)
        blocks[:, start : start + 2] = halves.view(np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = rng.integers(0, 250, num_blocks)
    if name == "IQ1_M":  # the top four bits of the scale, of which the exponent is not all ones
        blocks[:, 55] = blocks[:, 55] & 0x8F | 0x30
    return blocks


def theirs(name: str, blocks: np.ndarray) -> np.ndarray:
    return gguf.dequantize(blocks, gguf.GGMLQuantizationType[name])


@pytest.mark.parametrize("name", list(DEQUANTIZE))
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_values_are_the_packages_bit_for_bit(name: str, seed: int) -> None:
    blocks = random_blocks(name, 40, seed)
    expected = theirs(name, blocks)
    found = DEQUANTIZE[name](blocks).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", list(ON_A_GRID))
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_values_on_a_grid_are_the_packages(name: str, seed: int) -> None:
    blocks = random_blocks(name, 40, seed)
    weight = BLOCK_FORMATS[name].decode(blocks.reshape(20, -1))
    assert weight.spec.name == ON_A_GRID[name]
    assert weight.spec.has_kernel(512)
    expected = theirs(name, blocks).reshape(20, -1)
    np.testing.assert_array_equal(weight.at_work(), expected)
    np.testing.assert_array_equal(weight.dequantize(), expected)


@pytest.mark.parametrize("name", [name for name, one in BLOCK_FORMATS.items() if one.is_quantized])
def test_a_weight_says_how_it_is_held(name: str) -> None:
    block = BLOCK_FORMATS[name]
    rows = random_blocks(name, 8, seed=3).reshape(4, -1)
    weight = block.decode(rows)
    assert weight.spec == block.spec
    assert weight.shape == (4, 2 * block.block_columns)
    expected = theirs(name, rows)
    rounded = round_to(expected, "bf16")
    np.testing.assert_array_equal(weight.at_work(), expected if block.is_exact else rounded)
    if name in ON_A_GRID:
        assert block.note is None or "the same values" in block.note
    # Four bytes a weight are never needed.
    assert block.spec != WeightSpec(dtype="fp32")


def test_notes_tell_of_what_is_not_in_the_file() -> None:
    notes = {name: one.note for name, one in BLOCK_FORMATS.items()}
    for name in ("F32", "F16", "BF16", "Q4_0", "Q5_0", "Q8_0", "Q4_K", "TQ2_0"):
        assert notes[name] is None
    assert notes["IQ2_S"] == "are dequantized to bf16: there is no kernel for that format"
    assert notes["IQ3_S"] == "are held as int5-g32: the same values in 5.5 bits a weight"
    assert notes["NVFP4"] == "are held as bf16: the same values in 16 bits a weight"


@pytest.mark.parametrize("name", [*ON_A_GRID, "IQ2_S", "IQ1_M", "MXFP4"])
def test_scales_that_are_no_numbers_are_refused(name: str) -> None:
    rows = random_blocks(name, 2, seed=4)
    if name == "MXFP4":
        rows[0] = 255
    elif name == "IQ1_M":
        rows[0, 49::2] |= 0xF0
    else:
        start = HALVES.get(name, (0,))[0]
        rows[0, start : start + 2] = np.array([np.inf], np.float16).view(np.uint8)
    with pytest.raises(CheckpointError, match="not finite"):
        BLOCK_FORMATS[name].decode(rows)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_six_bits_are_packed_and_taken_apart(seed: int) -> None:
    numbers = np.random.default_rng(seed).integers(0, 64, (2, 5, 8), np.uint8)
    packed = six_bits.pack(*numbers)
    assert packed.shape == (5, six_bits.NUM_BYTES)
    np.testing.assert_array_equal(np.stack(six_bits.unpack(packed)), numbers)
