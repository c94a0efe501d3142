"""A weight whose zeros are a bit each has the bits of the dense weight, and the bytes that
docs/internals/sparse.md says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.native_linear import source_of
from paredown.kernels import _core
from paredown.kernels.isa import supported_isas
from paredown.spec.weight import SHORT_BF16_ISAS
from references.bitmap import all_bytes, is_zero, random_zeros, two_of_four, with_zeros
from references.linear import LinearCase, random_case

ISAS = supported_isas()
# Around the borders of tiles and of what is expanded in registers.
TOKEN_COUNTS = (1, 2, 3, 5, 9, 13, 16, 17, 33, 70)
FORMS = [
    ("int8", "int8_group", 32),
    ("int8", "int8_group", 128),
    ("int8", "int8_group", None),
    ("int8", "int16_group", None),
    ("int8", "int8_row", None),
    ("int8", "int8_row", 64),
    ("int8", "int8_static", None),
    ("bf16", "bf16", None),
]


def layer(case: LinearCase, isa: str, bitmap: str, num_threads: int = 1) -> _core.Linear:
    source = replace(source_of(case), bitmap=bitmap)
    return _core.Linear(isa, num_threads, source.fields())


def outputs(linear: _core.Linear, case: LinearCase, x_TI: np.ndarray) -> np.ndarray:
    y = np.full((x_TI.shape[0], case.values_OI.shape[0]), np.nan, dtype=np.float32)
    linear.run(x_TI, y)
    return y


def assert_same_bits(case: LinearCase, isa: str, token_counts: tuple[int, ...]) -> None:
    num_columns = case.values_OI.shape[1]
    x_TI = np.random.default_rng(6).normal(size=(max(token_counts), num_columns))
    dense, bitmap = (layer(case, isa, choice) for choice in ("never", "always"))
    for count in token_counts:
        inputs = x_TI[:count].astype(np.float32)
        np.testing.assert_array_equal(
            outputs(bitmap, case, inputs).view(np.uint32),
            outputs(dense, case, inputs).view(np.uint32),
        )


def pruned(
    form: tuple[str, str, int | None], shape: tuple[int, int], share: float, seed: int = 0
) -> LinearCase:
    kind, activations, group_size = form
    rng = np.random.default_rng(seed)
    case = random_case(rng, kind, shape, group_size=group_size, activations=activations)
    return with_zeros(case, random_zeros(rng, shape, share))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(75, 384), (48, 2176)])
def test_products_have_the_same_bits(
    isa: str, form: tuple[str, str, int | None], shape: tuple[int, int]
) -> None:
    """With panels that have no other one beside them, and columns that fill no stretch."""
    assert_same_bits(pruned(form, shape, 0.5), isa, TOKEN_COUNTS)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("share", [0.0, 0.97, 1.0])
def test_any_share_of_zeros_has_the_same_bits(isa: str, share: float) -> None:
    for form in (("int8", "int8_group", 32), ("bf16", "bf16", None)):
        assert_same_bits(pruned(form, (33, 96), share), isa, (1, 4, 40))


@pytest.mark.parametrize("isa", ISAS)
def test_groups_wider_than_what_is_expanded_at_once_have_the_same_bits(isa: str) -> None:
    form = ("int8", "int8_group", 1536)
    assert_same_bits(pruned(form, (32, 3072), 0.5), isa, (1, 3, 40, 140))


@pytest.mark.parametrize("isa", ISAS)
def test_numbers_of_all_exponents_keep_their_bits(isa: str) -> None:
    """Blocks that are wide beside blocks that are not, subnormal numbers, and zeros with a sign."""
    case = pruned(("bf16", "bf16", None), (40, 512), 0.5)
    values, rng = case.values_OI.copy(), np.random.default_rng(4)
    rare = rng.random(values.shape) < 0.002
    values[rare] = rng.choice([0x8000, 0x0001, 0x807F, 0x7F00, 0xFF00, 0x0080, 0x1234], rare.sum())
    assert_same_bits(replace(case, values_OI=values), isa, (1, 5, 20))


@pytest.mark.parametrize("isa", ISAS)
def test_threads_change_no_bit(isa: str) -> None:
    case = pruned(("int8", "int8_group", 32), (160, 256), 0.5)
    x_TI = np.random.default_rng(1).normal(size=(140, 256)).astype(np.float32)
    alone = outputs(layer(case, isa, "always"), case, x_TI)
    np.testing.assert_array_equal(outputs(layer(case, isa, "always", 2), case, x_TI), alone)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    form=st.sampled_from(FORMS),
    num_rows=st.integers(1, 70),
    num_blocks=st.integers(1, 40),
    share=st.sampled_from([0.1, 0.5, 0.9]),
    num_exponents=st.integers(1, 24),
    num_tokens=st.integers(1, 40),
    isa=st.sampled_from(ISAS),
)
def test_any_weight_has_the_same_bits_and_the_bytes_of_the_formula(
    seed: int,
    form: tuple[str, str, int | None],
    num_rows: int,
    num_blocks: int,
    share: float,
    num_exponents: int,
    num_tokens: int,
    isa: str,
) -> None:
    num_columns = 32 * num_blocks
    if form[2] is not None and num_columns % form[2] != 0:
        form = (form[0], form[1], 32)
    case = pruned(form, (num_rows, num_columns), share, seed)
    if case.kind == "bf16":
        rng = np.random.default_rng(seed)
        words = (100 + rng.integers(0, num_exponents, case.values_OI.shape)) << 7
        words |= rng.integers(0, 2, words.shape) << 15 | rng.integers(0, 128, words.shape)
        case = replace(case, values_OI=np.where(is_zero(case), 0, words).astype(np.uint16))
    assert_same_bits(case, isa, (num_tokens,))
    is_short = case.kind == "bf16" and isa in SHORT_BF16_ISAS
    assert layer(case, isa, "always").num_bytes == all_bytes(case, is_short=is_short)


@pytest.mark.parametrize(("kind", "columns"), [("int8", 96), ("bf16", 90), ("int8", 70)])
def test_columns_that_fill_no_block_take_a_bit_and_no_number(kind: str, columns: int) -> None:
    rng = np.random.default_rng(2)
    case = random_case(
        rng, kind, (20, columns), activations="bf16" if kind == "bf16" else "int8_row"
    )
    case = with_zeros(case, random_zeros(rng, (20, columns), 0.5))
    assert layer(case, "generic", "always").num_bytes == all_bytes(case, is_short=False)
    assert_same_bits(case, "generic", (1, 3, 9))


def test_two_of_four_takes_what_any_half_takes() -> None:
    rng = np.random.default_rng(3)
    case = random_case(rng, "int8", (64, 256), activations="int8_row")
    half = with_zeros(case, two_of_four(rng, (64, 256)))
    half = replace(half, values_OI=np.where(is_zero(case), 129, half.values_OI).astype(np.uint8))
    assert is_zero(half).mean() == pytest.approx(0.5, abs=0.01)
    assert_same_bits(half, ISAS[-1], (1, 9))
    assert layer(half, "generic", "always").num_bytes == all_bytes(half, is_short=False)


def test_rows_of_an_embedding_are_those_of_the_dense_weight() -> None:
    case = pruned(("int8", "int8_group", 32), (37, 160), 0.6)
    found, expected = (np.empty(160, dtype=np.float32) for _ in range(2))
    dense, bitmap = (layer(case, "generic", choice) for choice in ("never", "always"))
    for row in range(37):
        bitmap.read_row(row, found)
        dense.read_row(row, expected)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("value_bits", "least"), [(16, 0.4625), (12, 0.4834), (8, 0.325), (4, None), (2, None)]
)
def test_a_bitmap_pays_from_the_share_of_zeros_that_the_docs_say(
    value_bits: int, least: float | None
) -> None:
    """1 + (1 - z) b bits are at most 0.8 b of int8 and 0.6 b of bf16."""
    num = 10**6
    if least is None:
        assert not any(_core.bitmap_pays(value_bits, num, zeros) for zeros in (0, num // 2, num))
        return
    assert _core.bitmap_pays(value_bits, num, int((least + 0.001) * num))
    assert not _core.bitmap_pays(value_bits, num, int((least - 0.001) * num))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("form", [("int8", "int8_row", None), ("bf16", "bf16", None)])
def test_the_core_chooses_what_pays(isa: str, form: tuple[str, str, int | None]) -> None:
    for share in (0.0, 0.1, 0.3, 0.5, 0.7):
        case = pruned(form, (64, 512), share)
        dense, bitmap, auto = (
            layer(case, isa, choice).num_bytes for choice in ("never", "always", "auto")
        )
        is_short = case.kind == "bf16" and isa in SHORT_BF16_ISAS
        bits = 8 if case.kind == "int8" else 12 if is_short else 16
        zeros = int(is_zero(case).sum())
        pays = _core.bitmap_pays(bits, case.values_OI.size, zeros)
        assert pays == (share >= 0.5)
        assert auto == (bitmap if pays else dense)


def test_zeros_with_a_sign_count() -> None:
    """A mask that is multiplied with weights leaves them."""
    case = pruned(("bf16", "bf16", None), (64, 512), 0.5)
    signed = np.where(is_zero(case), 0x8000, case.values_OI).astype(np.uint16)
    found = layer(replace(case, values_OI=signed), "generic", "auto")
    assert found.num_bytes == layer(case, "generic", "auto").num_bytes
    assert found.num_bytes < 0.7 * layer(case, "generic", "never").num_bytes


@pytest.mark.parametrize(
    ("kind", "activations", "symmetric"),
    [
        ("int8", "int8_row", False),
        ("int8", "bf16", True),
        ("bf16", "fp32", True),
        ("int4", "int8_row", True),
        ("fp8", "bf16", True),
        ("fp32", "fp32", True),
    ],
)
def test_other_weights_stay_dense(kind: str, activations: str, symmetric: bool) -> None:
    rng = np.random.default_rng(0)
    case = random_case(rng, kind, (32, 128), symmetric=symmetric, activations=activations)
    case = replace(case, values_OI=np.zeros_like(case.values_OI))
    sizes = {layer(case, "generic", choice).num_bytes for choice in ("never", "always", "auto")}
    assert len(sizes) == 1


@pytest.mark.parametrize("kind", ["int8_bitmap", "bf16_bitmap", "bf16_short_bitmap"])
def test_a_bitmap_is_packed_of_dense_numbers(kind: str) -> None:
    case = random_case(np.random.default_rng(0), "bf16", (16, 32))
    fields = source_of(case).fields() | {"kind": kind, "activations": "bf16"}
    with pytest.raises(ValueError, match=r"plain numbers|elements"):
        _core.Linear("generic", 1, fields)
    with pytest.raises(ValueError, match="bitmap choice 'x' is unknown"):
        _core.Linear("generic", 1, source_of(case).fields() | {"bitmap": "x"})
