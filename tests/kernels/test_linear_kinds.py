"""Every kind of weight with every kind of input it takes, against the float64 reference."""

import numpy as np
import pytest

from linear_reference import INTEGER_BITS, LinearCase, linear_reference, random_case
from paredown.kernels import _core
from paredown.kernels.isa import supported_isas
from paredown.spec.weight import ACTIVATIONS, WeightSpec

ISAS = supported_isas()
PAIRS = [(kind, one) for kind, possible in ACTIVATIONS.items() for one in possible]
SHAPES = [(16, 128), (37, 384), (70, 256)]


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
        case.activations,
        case.input_scale or 0.0,
    )
    y = np.full((x_TI.shape[0], case.values_OI.shape[0]), np.nan, dtype=np.float32)
    linear.run(x_TI, y)
    return y


def groups_of(kind: str, activations: str) -> list[int | None]:
    spec = WeightSpec(dtype=kind, group_size=32)
    grouped = spec.is_quantized and activations in spec.possible_activations
    return [None, 32, 128] if grouped else [None]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "activations"), PAIRS)
def test_every_pair_matches_the_reference(isa: str, kind: str, activations: str) -> None:
    rng = np.random.default_rng(13)
    for group in groups_of(kind, activations):
        for shape in SHAPES:
            case = random_case(
                rng,
                kind,
                shape,
                group_size=group,
                symmetric=bool(shape[0] % 2) or kind not in INTEGER_BITS,
                bf16_scales=shape[0] != 37,
                activations=activations,
            )
            for num_tokens in (1, 5, 16, 33):
                x = rng.normal(size=(num_tokens, shape[1])).astype(np.float32)
                expected = linear_reference(case, x)
                error = np.abs(run(case, x, isa) - expected).max()
                # float32 sums of I products: far below one code of any integer format.
                assert error <= 2e-5 * max(1.0, np.abs(expected).max()), (group, shape, num_tokens)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kind", "activations"), PAIRS)
def test_a_row_has_the_same_bits_alone_and_in_a_batch(
    isa: str, kind: str, activations: str
) -> None:
    rng = np.random.default_rng(17)
    case = random_case(rng, kind, (53, 160), activations=activations)
    x = rng.normal(size=(37, 160)).astype(np.float32)
    together = run(case, x, isa)
    assert np.array_equal(together, run(case, x, isa, num_threads=2))
    for t in range(37):
        assert np.array_equal(run(case, x[t : t + 1], isa)[0], together[t])


def test_pairs_that_mean_nothing_are_refused() -> None:
    rng = np.random.default_rng(0)
    for kind, activations in (("fp32", "int8_row"), ("bf16", "int8_group"), ("int4", "bf16")):
        case = random_case(rng, kind, (16, 64), activations=activations)
        with pytest.raises(ValueError, match="activations"):
            run(case, np.zeros((1, 64), np.float32), "")
