"""Rows of a native linear layer have the same bits alone, in any batch and on any threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.native_linear import FORMS, ISAS, native_linear, run_linear
from paredown.kernels.isa import chosen_isa
from references.linear import random_case, random_stepped_case

# Around the borders of tiles, of in-register decoding, and of the stretches decoded to memory.
TOKEN_COUNTS = (1, 2, 4, 5, 7, 13, 16, 17, 33, 50)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "activations"), FORMS)
@pytest.mark.parametrize("num_rows", [75, 90])  # whose last panel has no other beside it, or has
def test_every_count_of_tokens_gives_a_row_the_same_bits(
    isa: str, kind: str, activations: str, num_rows: int
) -> None:
    rng = np.random.default_rng(8)
    group = None if (kind, activations) == ("fp8", "bf16") else 64
    case = random_case(
        rng, kind, (num_rows, 1216), group_size=group, symmetric=False, activations=activations
    )
    x = rng.normal(size=(max(TOKEN_COUNTS), 1216)).astype(np.float32)
    linear = native_linear(case, isa, 2)
    rows: dict[int, np.ndarray] = {}
    for num_tokens in TOKEN_COUNTS:
        y = np.empty((num_tokens, num_rows), dtype=np.float32)
        linear.run(x[:num_tokens], y)
        for t in range(num_tokens):
            assert np.array_equal(rows.setdefault(t, y[t].copy()), y[t])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "activations"), FORMS)
@pytest.mark.parametrize("group", [None, 32])
def test_what_is_no_number_shows_in_its_row_and_in_no_other(
    isa: str, kind: str, activations: str, group: int | None
) -> None:
    """So that logits tell of it. One scale for all inputs takes infinity for its largest code."""
    if (kind, activations) == ("fp8", "bf16") and group is not None:
        group = None
    rng = np.random.default_rng(16)
    case = random_case(rng, kind, (90, 384), group_size=group, activations=activations)
    clean = rng.normal(size=(40, 384)).astype(np.float32)
    x = clean.copy()
    places = {0: (383, np.nan), 3: (5, np.nan), 17: (100, np.inf), 30: (200, -np.inf)}
    for token, (column, value) in places.items():
        x[token, column] = value
    saturates = activations == "int8_static"
    for num_tokens in (1, 7, 40):
        y = run_linear(case, x[:num_tokens], isa)
        expected = run_linear(case, clean[:num_tokens], isa)
        for token in range(num_tokens):
            value = places.get(token, (0, 0.0))[1]
            if np.isnan(value) or (np.isinf(value) and not saturates):
                assert not np.isfinite(y[token]).any()
            elif value == 0.0:
                assert np.array_equal(y[token], expected[token])
            else:
                assert np.isfinite(y[token]).all()


@pytest.mark.parametrize("form", ["bf16", "int8", "stepped"])
def test_rows_multiplied_in_parts_have_the_same_bits(form: str) -> None:
    """Tiles cut rows whose inputs do not fit a cache: from 128 tokens on here, int8 codes at 512
    tokens in 4 parts, bf16 in 9; more panels than pass over a part at once, the last one alone."""
    rng = np.random.default_rng(12)
    shape = (1045, 8256)
    if form == "stepped":
        case = random_stepped_case(rng, shape, group_size=32, activations="int8_row")
    else:
        activations = {"bf16": "bf16", "int8": "int8_row"}[form]
        case = random_case(rng, form, shape, group_size=None, activations=activations)
    x = rng.normal(size=(530, shape[1])).astype(np.float32)
    linear = native_linear(case, chosen_isa(), 1)
    few = np.empty((40, shape[0]), dtype=np.float32)
    picked = rng.choice(530, size=40, replace=False)
    linear.run(x[picked], few)
    for num_tokens in (530, 150):
        y = np.empty((num_tokens, shape[0]), dtype=np.float32)
        linear.run(x[:num_tokens], y)
        is_in = picked < num_tokens
        assert np.array_equal(y[picked[is_in]], few[is_in])


@pytest.mark.parametrize(
    ("form", "group", "symmetric", "activations"),
    [
        ("int2", 32, True, "int8_group"),
        ("int3", 96, True, "int8_group"),  # stretches that end in the middle of 64 columns
        ("int4", 32, True, "int8_group"),
        ("int4", 576, True, "int8_group"),
        ("int4", 96, False, "int8_group"),
        ("int4", None, False, "int8_group"),
        ("int8", 96, False, "int8_group"),
        ("int8", None, True, "int8_group"),
        ("int8", None, False, "int8_row"),
        ("stepped", 32, False, "int8_row"),
    ],
)
def test_tiles_that_share_codes_give_a_row_the_same_bits(
    form: str, group: int | None, symmetric: bool, activations: str
) -> None:
    """Pairs of panels, in stretches, for tiles of all sizes; those of short codes with scales of
    groups also make one product for two columns, from 17 tokens on."""
    rng = np.random.default_rng(13)
    shape = (90, 4608)
    if form == "stepped":
        case = random_stepped_case(rng, shape, group_size=32, symmetric=symmetric)
    else:
        case = random_case(
            rng, form, shape, group_size=group, symmetric=symmetric, activations=activations
        )
    x = rng.normal(size=(258, shape[1])).astype(np.float32)
    linear = native_linear(case, chosen_isa(), 2)
    alone = np.empty((258, shape[0]), dtype=np.float32)
    for t in range(258):
        linear.run(x[t : t + 1], alone[t : t + 1])
    for num_tokens in (*range(11, 35), 64, 127, 128, 130, 256, 258):
        y = np.empty((num_tokens, shape[0]), dtype=np.float32)
        linear.run(x[:num_tokens], y)
        assert np.array_equal(y, alone[:num_tokens])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("kind", "group"), [("int4", 32), ("int4", 64), ("int8", 128), ("int5", 32)]
)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("num_rows", [75, 90])
def test_inputs_of_any_size_give_a_row_the_same_bits(
    isa: str, kind: str, group: int, symmetric: bool, num_rows: int
) -> None:
    """Scales of grouped inputs are powers of two from 2^-100 to 2^104, which sums of many tokens
    carry in their exponents; beyond them a row is no number, whatever runs beside it."""
    rng = np.random.default_rng(14)
    case = random_case(rng, kind, (num_rows, 384), group_size=group, symmetric=symmetric)
    sizes = (1e-45, 1e-38, 1e-30, 1e-12, 1.0, 1e12, 1e30, 2.4e33, 2.5e33, 1e38, np.inf)
    x = np.clip(rng.normal(size=(300, 384)), -3, 3).astype(np.float32) / 3
    x[:, 5] = 1.0  # the largest of a group
    with np.errstate(over="ignore", invalid="ignore"):
        x[:, :group] *= np.float32([sizes[t % len(sizes)] for t in range(300)])[:, None]
    x[np.isnan(x)] = 0
    linear = native_linear(case, isa, 2)
    alone = np.empty((300, num_rows), dtype=np.float32)
    for t in range(300):
        linear.run(x[t : t + 1], alone[t : t + 1])
    for num_tokens in (2, 7, 16, 33, 130, 300):
        y = np.empty((num_tokens, num_rows), dtype=np.float32)
        linear.run(x[:num_tokens], y)
        assert np.array_equal(y, alone[:num_tokens], equal_nan=True)
    for t, row in enumerate(alone):
        assert np.isfinite(row).all() == (sizes[t % len(sizes)] < 2.43e33)
        assert np.isnan(row).all() == (sizes[t % len(sizes)] > 2.43e33)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("num_rows", [75, 90])
def test_scales_of_any_size_give_a_row_the_same_bits(
    isa: str, symmetric: bool, num_rows: int
) -> None:
    """Subnormal, and so large that what is scaled overflows for some inputs."""
    rng = np.random.default_rng(9)
    num_tokens, shape = 40, (num_rows, 256)
    for exponent in (-140, -126, 0, 99, 100, 101, 105, 110):
        case = random_case(rng, "int4", shape, group_size=32, symmetric=symmetric)
        case.scales_OG[:, 3] = np.float32(2.0) ** exponent
        x = rng.normal(size=(num_tokens, shape[1])).astype(np.float32) * np.float32(1e-3)
        together = run_linear(case, x, isa)
        assert np.isfinite(together).all()
        assert np.array_equal(run_linear(case, x[17:18], isa)[0], together[17])


@settings(max_examples=60, deadline=None)
@given(
    isa=st.sampled_from(ISAS),
    form=st.sampled_from(FORMS),
    rows=st.integers(1, 90),
    num_groups=st.integers(1, 5),
    num_tokens=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_row_has_the_same_bits_alone_and_in_any_batch_on_any_threads(
    isa: str, form: tuple[str, str], rows: int, num_groups: int, num_tokens: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = 32 * num_groups
    group = None if form == ("fp8", "bf16") else 32
    case = random_case(
        rng,
        form[0],
        (rows, columns),
        group_size=group,
        symmetric=seed % 2 == 0,
        activations=form[1],
    )
    x = rng.normal(size=(num_tokens, columns)).astype(np.float32)
    together = run_linear(case, x, isa)
    assert np.array_equal(together, run_linear(case, x, isa, num_threads=3))
    for t in range(num_tokens):
        alone = run_linear(case, x[t : t + 1], isa)
        assert np.array_equal(alone[0], together[t])
