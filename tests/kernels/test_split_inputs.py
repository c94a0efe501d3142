"""int16_group: inputs of two int8 codes, whose products are added up."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from drivers.native_linear import ISAS, run_linear
from paredown.compress.activations import ActivationGrid, round_activations, round_input
from references.blocks import KINDS, random_rows
from references.linear import INTEGER_BITS, LinearCase, linear_reference, random_case


def inputs(num_tokens: int, columns: int) -> np.ndarray:
    """Some numbers a hundred times as large as the others, as real models have them."""
    rng = np.random.default_rng(columns)
    x_TI = rng.normal(size=(num_tokens, columns)).astype(np.float32)
    x_TI[:, ::53] *= 100
    return x_TI


def first_codes(x_TI: np.ndarray, group_size: int | None) -> np.ndarray:
    return round_input(torch.from_numpy(x_TI), "int8_group", group_size=group_size).numpy()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", list(INTEGER_BITS))
@pytest.mark.parametrize("group_size", [32, 64, None])
@pytest.mark.parametrize("symmetric", [True, False])
def test_outputs_are_those_of_the_codes_and_of_what_they_leave(
    isa: str, kind: str, group_size: int | None, symmetric: bool
) -> None:
    rng = np.random.default_rng(7)
    case = random_case(
        rng, kind, (80, 192), group_size=group_size, symmetric=symmetric, activations="int8_group"
    )
    case = replace(case, bias_O=None)
    x_TI = inputs(40, 192)
    rest_TI = x_TI - first_codes(x_TI, group_size)
    expected = run_linear(case, x_TI, isa) + run_linear(case, rest_TI, isa)
    split = replace(case, activations="int16_group")
    for num_tokens in (1, 2, 3, 17, 40):
        found = run_linear(split, x_TI[:num_tokens], isa, num_threads=2)
        np.testing.assert_array_equal(found, expected[:num_tokens])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_so_are_those_of_weights_in_blocks(isa: str, kind: str) -> None:
    rows = random_rows(np.random.default_rng(3), kind, 48, 512)
    case = LinearCase(kind=kind, values_OI=rows, group_size=512, activations="int8_group")
    x_TI = inputs(5, 512)
    grid = ActivationGrid(granularity="group", group_size=KINDS[kind].num_columns)
    rest_TI = x_TI - round_activations(torch.from_numpy(x_TI), grid).values.numpy()
    expected = run_linear(case, x_TI, isa) + run_linear(case, rest_TI, isa)
    found = run_linear(replace(case, activations="int16_group"), x_TI, isa)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("group_size", [32, 128, None])
def test_a_hundredth_of_the_error_of_one_code_is_left(group_size: int | None) -> None:
    case = random_case(np.random.default_rng(1), "int8", (64, 256), group_size=group_size)
    x_TI = inputs(8, 256)
    exact = linear_reference(replace(case, activations="fp32"), x_TI)
    errors = {
        one: np.abs(run_linear(replace(case, activations=one), x_TI, ISAS[-1]) - exact).max()
        for one in ("int8_group", "int16_group", "bf16")
    }
    assert errors["int16_group"] < errors["int8_group"] / 100
    assert errors["int16_group"] < errors["bf16"]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group_size", [64, None])
def test_what_is_no_number_stays_none(isa: str, group_size: int | None) -> None:
    case = random_case(
        np.random.default_rng(2),
        "int6",
        (32, 128),
        group_size=group_size,
        activations="int16_group",
    )
    x_TI = inputs(3, 128)
    x_TI[1, 7], x_TI[2, 40] = np.nan, np.inf
    y_TO = run_linear(case, x_TI, isa)
    assert np.isfinite(y_TO[0]).all()
    assert not np.isfinite(y_TO[1:]).any()
