"""Rows of packed codes as an embedding reads them: the values of the file, bit for bit."""

import gguf
import numpy as np
import pytest

from drivers.native_linear import native_linear
from references.blocks import KINDS, random_rows
from references.linear import LinearCase, random_case


def read_rows(case: LinearCase, num_columns: int) -> np.ndarray:
    layer = native_linear(case, "generic")
    found = np.full((len(case.values_OI), num_columns), np.nan, np.float32)
    for row, values in enumerate(found):
        layer.read_row(row, values)
    return found


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_of_blocks_are_the_packages(kind: str) -> None:
    rows = random_rows(np.random.default_rng(3), kind, 37, 768)
    case = LinearCase(kind=kind, values_OI=rows, group_size=768, activations="int8_group")
    expected = gguf.dequantize(rows, gguf.GGMLQuantizationType[kind.upper()])
    np.testing.assert_array_equal(read_rows(case, 768), expected)


@pytest.mark.parametrize("kind", ["int2", "int3", "int4", "int5", "int6", "int8"])
@pytest.mark.parametrize("group", [32, 96, None])
@pytest.mark.parametrize("symmetric", [True, False])
def test_rows_of_integers_are_codes_times_scales(
    kind: str, group: int | None, symmetric: bool
) -> None:
    case = random_case(
        np.random.default_rng(4),
        kind,
        (37, 192),
        group_size=group,
        symmetric=symmetric,
        activations="int8_group",
    )
    assert case.scales_OG is not None
    size = 192 // case.scales_OG.shape[1]
    middle = np.full_like(case.scales_OG, 1 << int(kind[3:]) - 1)
    zeros = middle if case.zero_points_OG is None else case.zero_points_OG
    signed = case.values_OI.astype(np.float32) - np.repeat(zeros, size, axis=1)
    expected = (signed * np.repeat(case.scales_OG, size, axis=1)).astype(np.float32)
    np.testing.assert_array_equal(read_rows(case, 192), expected)


def test_subnormal_scales_stay_as_they_are() -> None:
    scales = np.array([[6e-8, 0.0], [-3.3e-6, 0.5], [6.1e-5, -1.25]]).astype(np.float16)
    values = np.full((3, 64), 129, np.uint8)
    case = LinearCase(
        kind="int8",
        values_OI=values,
        group_size=32,
        scales_OG=scales.astype(np.float32),
        activations="int8_group",
    )
    expected = np.repeat(scales.astype(np.float32), 32, axis=1)
    np.testing.assert_array_equal(read_rows(case, 64), expected)
    assert native_linear(case, "generic").num_bytes == 16 * 64 + 16 * 2 * 2


def test_what_is_no_row_is_refused() -> None:
    rows = random_rows(np.random.default_rng(5), "q6_k", 16, 256)
    layer = native_linear(
        LinearCase(kind="q6_k", values_OI=rows, group_size=256, activations="int8_group"), "generic"
    )
    for row, size in ((-1, 256), (16, 256), (0, 255)):
        with pytest.raises(ValueError, match="row of codes"):
            layer.read_row(row, np.zeros(size, np.float32))
