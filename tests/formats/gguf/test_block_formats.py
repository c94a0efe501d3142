"""GGUF's block formats: code for code, bit for bit with the naive loops and the gguf package."""

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.block_weight import BlockWeight
from paredown.formats.gguf import codes
from paredown.formats.gguf.table import BLOCK_FORMATS, OTHER_TYPES, encode, exact_format
from paredown.formats.grid_weight import GridWeight
from paredown.spec.weight import WeightSpec
from references.blocks import KINDS, values
from references.gguf import QUANTIZERS, dequantize_block

CODED = ("Q4_0", "Q5_0", "Q8_0")
IN_BLOCKS = tuple(kind.upper() for kind in KINDS)
# Where a block's fp16 numbers stand.
HALVES = {kind.upper(): case.halves for kind, case in KINDS.items()}
QUANTIZE = {name: BLOCK_FORMATS[name].quantize for name in QUANTIZERS}


def random_rows(name: str, num_rows: int, num_columns: int, seed: int = 0) -> np.ndarray:
    """Any bytes, with scales of both signs that are numbers."""
    block = BLOCK_FORMATS[name]
    rng = np.random.default_rng(seed)
    num_blocks = num_rows * num_columns // block.block_columns
    rows = rng.integers(0, 256, (num_blocks, block.block_bytes), np.uint8)
    for start in HALVES.get(name, (0,)):
        halves = rng.normal(size=(num_blocks, 1)).astype(np.float16)
        rows[:, start : start + 2] = halves.view(np.uint8)
    if name == "MXFP4":
        rows[:, 0] %= 253
    return rows.reshape(num_rows, -1)


def exact_values(weight: GridWeight | BlockWeight) -> np.ndarray:
    """Code times scale in float32, without the rounding to the scale's dtype."""
    if isinstance(weight, BlockWeight):
        return weight.dequantize()
    if weight.scales_OG is None:
        return weight.values_OI
    signed = weight.values_OI.astype(np.float32) - (1 << weight.spec.bits - 1)
    groups = signed.reshape(len(signed), -1, 32) * weight.scales_OG[:, :, None]
    return groups.reshape(signed.shape)


@pytest.mark.parametrize("name", [*CODED, *IN_BLOCKS])
def test_blocks_have_the_values_of_the_naive_loop_and_of_the_package(name: str) -> None:
    block = BLOCK_FORMATS[name]
    rows = random_rows(name, 3, 512)
    weight = block.decode(rows)
    assert weight.shape == (3, 512)
    assert weight.spec == block.spec
    assert block.is_exact
    found = exact_values(weight)
    if name in CODED:
        each = [
            dequantize_block(name, one.tobytes()) for one in rows.reshape(-1, block.block_bytes)
        ]
        naive = np.array(each, np.float32).reshape(found.shape)
    else:
        naive = values(name.lower(), rows).astype(np.float32)
    np.testing.assert_array_equal(found, naive)
    theirs = gguf.dequantize(rows, gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(found, theirs)


@pytest.mark.parametrize("name", list(BLOCK_FORMATS))
def test_sizes_and_numbers_are_the_packages(name: str) -> None:
    block = BLOCK_FORMATS[name]
    kind = gguf.GGMLQuantizationType[name]
    assert block.type_id == kind
    assert gguf.GGML_QUANT_SIZES[kind] == (block.block_columns, block.block_bytes)
    assert block.type_id not in OTHER_TYPES
    assert all(gguf.GGMLQuantizationType[n] == i for i, n in OTHER_TYPES.items())


@pytest.mark.parametrize("name", [*CODED, *IN_BLOCKS])
@given(seed=st.integers(0, 2**32 - 1), num_rows=st.integers(1, 4), num_blocks=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_encode_gives_back_the_bytes(name: str, seed: int, num_rows: int, num_blocks: int) -> None:
    rows = random_rows(name, num_rows, BLOCK_FORMATS[name].block_columns * num_blocks, seed)
    block, again = encode(BLOCK_FORMATS[name].decode(rows))
    assert block.name == name
    np.testing.assert_array_equal(again, rows)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_floats_are_kept_bit_for_bit(name: str) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (4, 64), np.uint8)
    block, again = encode(BLOCK_FORMATS[name].decode(rows))
    assert block.name == name
    np.testing.assert_array_equal(again, rows)


def test_floats_at_an_odd_address_are_copied_to_an_even_one() -> None:
    rows = np.frombuffer(b"x" + np.arange(8, dtype=np.float32).tobytes(), np.uint8)[1:]
    values = BLOCK_FORMATS["F32"].decode(rows.reshape(2, 16)).values_OI
    assert values.flags.aligned
    assert values.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


# Values whose inverse scale is a number; below, llama.cpp's own codes are undefined.
VALUES = hnp.arrays(
    np.float32,
    (2, 64),
    elements=st.one_of(
        st.floats(-100, 100, width=32, allow_subnormal=False),
        st.sampled_from([0.0, 1.0, -1.0, 0.5, -0.5, 127.0, -127.0, 63.5]),
    ).filter(lambda value: value == 0 or abs(value) > 1e-20),
)


@pytest.mark.parametrize("name", list(QUANTIZERS))
@given(values=VALUES)
@settings(max_examples=60, deadline=None)
def test_quantizes_as_llama_cpp_does(name: str, values: np.ndarray) -> None:
    block, rows = encode(QUANTIZE[name](values))
    assert block.name == name
    naive = b"".join(QUANTIZERS[name](group) for group in values.reshape(-1, 32))
    assert rows.tobytes() == naive
    theirs = gguf.quantize(values, gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(rows, theirs)


@pytest.mark.parametrize("name", list(QUANTIZERS))
def test_many_rows_are_quantized_in_chunks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(size=(70, 96)).astype(np.float32)
    theirs = gguf.quantize(values, gguf.GGMLQuantizationType[name])
    monkeypatch.setattr(codes, "CHUNK_VALUES", 500)
    np.testing.assert_array_equal(encode(QUANTIZE[name](values))[1], theirs)


def test_values_below_the_smallest_scale_become_zeros() -> None:
    values = np.full((1, 32), 1e-44, np.float32)
    for quantize in QUANTIZE.values():
        assert not quantize(values).dequantize().any()


def test_negative_scales_are_dequantized() -> None:
    values = np.linspace(-1, 2, 32, dtype=np.float32)[None]
    weight = QUANTIZE["Q4_0"](values)
    assert weight.scales_OG.item() < 0
    np.testing.assert_allclose(weight.dequantize(), values, atol=0.26)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (WeightSpec(dtype="int4", group_size=128), "int4-g128"),
        (WeightSpec(dtype="int4", group_size=32, symmetric=False), "int4-g32-asym"),
        (WeightSpec(dtype="int8"), "int8"),
        (WeightSpec(dtype="fp8"), "fp8"),
    ],
)
def test_what_no_block_holds_is_refused_by_name(spec: WeightSpec, named: str) -> None:
    with pytest.raises(UnsupportedError, match=f"exactly.*{named}"):
        exact_format(spec)


@pytest.mark.parametrize("scale", [1 + 2.0**-12, 1e-9, 1e6])
def test_a_scale_that_is_no_half_is_refused(scale: float) -> None:
    weight = GridWeight(
        spec=WeightSpec(dtype="int4", group_size=32),
        values_OI=np.zeros((1, 32), np.uint8),
        scales_OG=np.full((1, 1), scale, np.float32),
        scale_dtype="fp32",
    )
    with pytest.raises(UnsupportedError, match="fp16 scales"):
        encode(weight)


def test_bf16_scales_that_are_halves_are_kept() -> None:
    weight = GridWeight(
        spec=WeightSpec(dtype="int8", group_size=32),
        values_OI=np.full((1, 32), 131, np.uint8),
        scales_OG=np.full((1, 1), 0.0078125, np.float32),
        scale_dtype="bf16",
    )
    block, rows = encode(weight)
    np.testing.assert_array_equal(block.decode(rows).values_OI, weight.values_OI)
    np.testing.assert_array_equal(block.decode(rows).scales_OG, weight.scales_OG)


@pytest.mark.parametrize("name", ["Q8_0", *IN_BLOCKS])
def test_scales_that_are_no_numbers_are_refused(name: str) -> None:
    for start in HALVES.get(name, (0,)):
        for wrong in (np.inf, -np.inf, np.nan):
            rows = random_rows(name, 1, 256)
            rows[0, start : start + 2] = np.array([wrong], np.float16).view(np.uint8)
            with pytest.raises(CheckpointError, match="not finite"):
                BLOCK_FORMATS[name].decode(rows)


def test_powers_of_two_beyond_float32_are_refused() -> None:
    rows = random_rows("MXFP4", 1, 64)
    rows[0, 17] = 252
    assert np.isfinite(BLOCK_FORMATS["MXFP4"].decode(rows).at_work()).all()
    rows[0, 17] = 253
    with pytest.raises(CheckpointError, match="not finite"):
        BLOCK_FORMATS["MXFP4"].decode(rows)


@pytest.mark.parametrize("name", list(QUANTIZERS))
def test_values_that_cannot_be_quantized_are_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="not finite"):
        QUANTIZE[name](np.full((1, 32), np.nan, np.float32))
    with pytest.raises(UnsupportedError, match="this large"):
        QUANTIZE[name](np.full((1, 32), 1e8, np.float32))
    with pytest.raises(UnsupportedError, match="do not divide"):
        QUANTIZE[name](np.zeros((1, 48), np.float32))
