"""Native linear layers against the float64 reference, on every instruction set of this machine."""

from itertools import product

import numpy as np
import pytest

from drivers.native_linear import FORMS, ISAS, run_linear
from references.linear import (
    INTEGER_BITS,
    LinearCase,
    linear_reference,
    random_case,
)


def assert_close(case: LinearCase, x_TI: np.ndarray, isa: str) -> None:
    expected = linear_reference(case, x_TI)
    error = np.abs(run_linear(case, x_TI, isa) - expected).max()
    # float32 sums of I products: far below one code of any integer format.
    assert error <= 2e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "activations"), FORMS)
@pytest.mark.parametrize("symmetric", [True, False])
def test_layers_match_the_reference(isa: str, kind: str, activations: str, symmetric: bool) -> None:
    rng = np.random.default_rng(7)
    groups = (None,) if (kind, activations) == ("fp8", "bf16") else (None, 32, 64, 128)
    for group, shape in product(groups, ((16, 128), (37, 384), (90, 256))):
        case = random_case(
            rng, kind, shape, group_size=group, symmetric=symmetric, activations=activations
        )
        for num_tokens in (1, 4, 7, 12, 40):
            assert_close(case, rng.normal(size=(num_tokens, shape[1])).astype(np.float32), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "activations"), FORMS)
def test_columns_need_not_fill_a_block(isa: str, kind: str, activations: str) -> None:
    rng = np.random.default_rng(3)
    for rows, columns in product((1, 20), (16, 48, 80, 96, 112)):
        case = random_case(
            rng, kind, (rows, columns), symmetric=False, bf16_scales=False, activations=activations
        )
        for num_tokens in (1, 3, 20):
            assert_close(case, rng.normal(size=(num_tokens, columns)).astype(np.float32), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "activations"), FORMS)
@pytest.mark.parametrize("symmetric", [True, False])
def test_wide_layers_are_summed_in_stretches(
    isa: str, kind: str, activations: str, symmetric: bool
) -> None:
    """More columns than are decoded at once: 512 and 1,024 (csrc/kernels)."""
    rng = np.random.default_rng(4)
    groups = (None,) if (kind, activations) == ("fp8", "bf16") else (None, 96, 1536)
    for group in groups:
        case = random_case(
            rng,
            kind,
            (34, 3 * 1536),
            group_size=group,
            symmetric=symmetric,
            activations=activations,
        )
        for num_tokens in (1, 3, 22):
            assert_close(case, rng.normal(size=(num_tokens, 3 * 1536)).astype(np.float32), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activations", ["int8_group", "int8_row"])
@pytest.mark.parametrize("num_tokens", [1, 40])
@pytest.mark.parametrize("columns", [128, 65536])
def test_the_largest_codes_neither_saturate_nor_overflow(
    isa: str, activations: str, num_tokens: int, columns: int
) -> None:
    """255 * 127 * 2 overflows 16 bits, the trap of vpmaddubsw; 65,536 products of 255 and 127 fill
    an int32."""
    for kind, bits in INTEGER_BITS.items():
        top = (1 << bits) - 1
        for code, zero in ((top, 0), (0, top)):
            case = LinearCase(
                kind=kind,
                values_OI=np.full((16, columns), code, dtype=np.uint8),
                group_size=columns,
                scales_OG=np.ones((16, 1), dtype=np.float32),
                zero_points_OG=np.full((16, 1), zero, dtype=np.uint8),
                activations=activations,
            )
            for sign in (1.0, -1.0):
                x = np.full((num_tokens, columns), sign * 127.0, dtype=np.float32)
                y = run_linear(case, x, isa)
                expected = sign * 127 * columns * (code - zero)
                assert np.abs(y - expected).max() <= abs(expected) * 2**-22


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [32, 1024])
@pytest.mark.parametrize("kind", ["int2", "int3", "int4"])
def test_the_largest_codes_of_weights_and_grouped_inputs_fit_a_byte_together(
    isa: str, group: int, kind: str
) -> None:
    """Sums of 17 tokens and more multiply the sum of an input's code, up to 120, and a weight's."""
    rng = np.random.default_rng(15)
    rows, columns, num_tokens = 32, 2048, 40
    middle = 1 << (INTEGER_BITS[kind] - 1)
    codes = rng.choice([0, 2 * middle - 1], size=(rows, columns)).astype(np.uint8)
    signs = rng.choice([-1, 1], size=(num_tokens, columns))
    codes[:4, :], codes[4:8, :], signs[:2, :], signs[2:4, :] = 0, 2 * middle - 1, 1, -1
    case = LinearCase(
        kind=kind,
        values_OI=codes,
        group_size=group,
        scales_OG=np.ones((rows, columns // group), dtype=np.float32),
        activations="int8_group",
    )
    expected = 120 * signs @ (codes.astype(np.int64) - middle).T
    y = run_linear(case, (120.0 * signs).astype(np.float32), isa)
    assert np.array_equal(y, expected)  # whole numbers below 2^24


@pytest.mark.parametrize("isa", ISAS)
def test_one_scale_for_all_inputs_saturates_at_the_ends_of_int8(isa: str) -> None:
    for extreme, code in ((1e9, 127), (-1e9, -128)):
        case = LinearCase(
            kind="int8",
            values_OI=np.full((16, 65536), 255, dtype=np.uint8),
            group_size=65536,
            scales_OG=np.ones((16, 1), dtype=np.float32),
            activations="int8_static",
            input_scale=1.0,
        )
        y = run_linear(case, np.full((20, 65536), extreme, dtype=np.float32), isa)
        assert (y == 65536 * 127 * code).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", INTEGER_BITS)
@pytest.mark.parametrize("num_tokens", [1, 3, 40])
def test_sums_of_16_bits_hold_the_largest_codes_and_inputs(
    isa: str, kind: str, num_tokens: int
) -> None:
    """The codes that lie highest with -128: what AVX2 adds up in 16 bits is closest to 2^15."""
    rows, columns = 48, 256  # two panels side by side, and one
    bits = INTEGER_BITS[kind]
    top, middle = (1 << bits) - 1, 1 << (bits - 1)
    for extreme, code in ((1e9, 127), (-1e9, -128)):
        case = LinearCase(
            kind=kind,
            values_OI=np.full((rows, columns), top, dtype=np.uint8),
            group_size=columns,
            scales_OG=np.ones((rows, 1), dtype=np.float32),
            activations="int8_static",
            input_scale=1.0,
        )
        y = run_linear(case, np.full((num_tokens, columns), extreme, dtype=np.float32), isa)
        assert (y == columns * (top - middle) * code).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activations", ["bf16", "fp32"])
def test_every_fp8_code_is_exact_at_every_place(isa: str, activations: str) -> None:
    rows, columns = np.indices((256, 32))
    codes = ((rows + 8 * columns) % 256).astype(np.uint8)
    codes[codes & 0x7F == 0x7F] = 0  # not a number
    case = LinearCase(
        kind="fp8",
        values_OI=codes,
        group_size=32,
        scales_OG=np.ones((256, 1), dtype=np.float32),
        activations=activations,
    )
    x = np.eye(32, dtype=np.float32)
    assert np.array_equal(run_linear(case, x, isa), linear_reference(case, x))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "activations"), FORMS)
def test_zero_input_gives_the_bias(isa: str, kind: str, activations: str) -> None:
    case = random_case(np.random.default_rng(5), kind, (19, 64), activations=activations)
    for num_tokens in (1, 18):
        y = run_linear(case, np.zeros((num_tokens, 64), dtype=np.float32), isa)
        assert np.array_equal(y, np.stack([case.bias_O] * num_tokens))


@pytest.mark.parametrize(("kind", "activations"), FORMS)
def test_instruction_sets_agree(kind: str, activations: str) -> None:
    rng = np.random.default_rng(9)
    case = random_case(rng, kind, (48, 512), activations=activations)
    x = rng.normal(size=(20, 512)).astype(np.float32)
    expected = run_linear(case, x, "generic")
    for isa in ISAS[1:]:
        error = np.abs(run_linear(case, x, isa) - expected).max()
        assert error <= 1e-5 * np.abs(expected).max()
