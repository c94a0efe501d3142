"""Native linear layers against the float64 reference, on every instruction set of this machine."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linear_reference import LinearCase, linear_reference, random_case
from paredown.kernels import _core
from paredown.kernels.isa import supported_isas

ISAS = supported_isas()
FLOATS = ("fp32", "bf16", "fp16")
INTEGERS = [
    (kind, group, symmetric)
    for kind, group, symmetric in product(("int8", "int4"), (None, 32, 64, 128), (True, False))
]


def run(case: LinearCase, x_TI: np.ndarray, isa: str, num_threads: int = 1) -> np.ndarray:
    linear = _core.Linear(
        isa,
        num_threads,
        case.kind,
        case.values_OI,
        case.group_size,
        case.scales_OG,
        case.zero_points_OG,
        case.bias_O,
    )
    y = np.full((x_TI.shape[0], case.values_OI.shape[0]), np.nan, dtype=np.float32)
    linear.run(x_TI, y)
    return y


def assert_close(case: LinearCase, x_TI: np.ndarray, isa: str) -> None:
    expected = linear_reference(case, x_TI)
    error = np.abs(run(case, x_TI, isa) - expected).max()
    # float32 sums of I products: far below one code of any integer format.
    assert error <= 2e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("shape", [(16, 32), (1, 16), (83, 48), (130, 272)])
def test_float_weights_match_the_reference(isa: str, kind: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    case = random_case(rng, kind, shape, activations="fp32")
    for num_tokens in (1, 2, 5, 6, 7, 13):
        assert_close(case, rng.normal(size=(num_tokens, shape[1])).astype(np.float32), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "group", "symmetric"), INTEGERS)
def test_integer_weights_match_the_reference(
    isa: str, kind: str, group: int | None, symmetric: bool
) -> None:
    rng = np.random.default_rng(11)
    for rows, columns in ((16, 128), (37, 384), (70, 256)):
        case = random_case(rng, kind, (rows, columns), group_size=group, symmetric=symmetric)
        for num_tokens in (1, 4, 7, 12):
            x = rng.normal(size=(num_tokens, columns)).astype(np.float32)
            assert_close(case, x, isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("columns", [16, 48, 80, 96, 112])
def test_rows_that_are_no_multiple_of_the_group_are_padded(
    isa: str, kind: str, columns: int
) -> None:
    rng = np.random.default_rng(3)
    case = random_case(rng, kind, (20, columns), symmetric=False, bf16_scales=False)
    assert_close(case, rng.normal(size=(3, columns)).astype(np.float32), isa)


@pytest.mark.parametrize("isa", ISAS)
def test_the_largest_codes_do_not_saturate(isa: str) -> None:
    """255 * 127 * 2 overflows 16 bits: the trap of vpmaddubsw."""
    for kind, top in (("int8", 255), ("int4", 15)):
        case = LinearCase(
            kind=kind,
            values_OI=np.full((16, 128), top, dtype=np.uint8),
            group_size=128,
            scales_OG=np.ones((16, 1), dtype=np.float32),
            zero_points_OG=np.zeros((16, 1), dtype=np.uint8),
            activations="int8_group",
        )
        y = run(case, np.full((1, 128), 127.0, dtype=np.float32), isa)
        assert (y == 128 * top * 127).all()


@pytest.mark.parametrize("isa", ISAS)
def test_zero_input_gives_the_bias(isa: str) -> None:
    rng = np.random.default_rng(5)
    for kind in ("fp32", "bf16", "fp16", "int8", "int4"):
        case = random_case(rng, kind, (19, 64))
        y = run(case, np.zeros((2, 64), dtype=np.float32), isa)
        assert np.array_equal(y, np.stack([case.bias_O, case.bias_O]))


@settings(max_examples=40, deadline=None)
@given(
    isa=st.sampled_from(ISAS),
    kind=st.sampled_from([*FLOATS, "int8", "int4"]),
    rows=st.integers(1, 90),
    num_groups=st.integers(1, 5),
    num_tokens=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_row_has_the_same_bits_alone_and_in_any_batch_on_any_threads(
    isa: str, kind: str, rows: int, num_groups: int, num_tokens: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = 32 * num_groups
    case = random_case(rng, kind, (rows, columns), group_size=32, symmetric=seed % 2 == 0)
    x = rng.normal(size=(num_tokens, columns)).astype(np.float32)
    together = run(case, x, isa)
    assert np.array_equal(together, run(case, x, isa, num_threads=2))
    for t in range(num_tokens):
        alone = run(case, x[t : t + 1], isa)
        assert np.array_equal(alone[0], together[t])


def test_bad_arrays_are_refused() -> None:
    rng = np.random.default_rng(0)
    case = random_case(rng, "int4", (16, 64), group_size=32)
    with pytest.raises(ValueError, match="scales and zero points"):
        _core.Linear("", 1, "int4", case.values_OI, 16, case.scales_OG, None, None)
    scales = np.ones((16, 4), dtype=np.float32)
    with pytest.raises(ValueError, match="multiple of 32"):
        _core.Linear("", 1, "int4", case.values_OI, 16, scales, None, None)
    with pytest.raises(ValueError, match="is unknown"):
        _core.Linear("", 1, "int3", case.values_OI, 32, case.scales_OG, None, None)
    with pytest.raises(ValueError, match="size of its kind"):
        _core.Linear("", 1, "fp32", case.values_OI, 64, None, None, None)
    with pytest.raises(ValueError, match="not supported by this processor"):
        _core.Linear("mmx", 1, "int4", case.values_OI, 32, case.scales_OG, None, None)
