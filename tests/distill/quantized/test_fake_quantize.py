"""Values and gradients of fake quantization are those of the formula, weight by weight."""

import pytest
import torch

from paredown.compress.fit_grid import fit_grid
from paredown.compress.grid import grouped
from paredown.distill.quantized.fake_quantize import fake_quantize
from paredown.spec.weight import WeightSpec
from references.fake_quantization import fake_quantized_group


def random_weight(seed: int) -> torch.Tensor:
    return torch.randn(4, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_values_and_gradients_are_those_of_the_formula(bits: int, symmetric: bool) -> None:
    spec = WeightSpec(dtype=f"int{bits}", group_size=8, symmetric=symmetric)
    grid = fit_grid(grouped(random_weight(1), 8), spec, "fp32")
    # Other weights than those that the grid was fitted to, so that some lie beyond it.
    weight_OI = (1.5 * random_weight(2)).requires_grad_()
    scales_OG = grid.scales_OG.clone().requires_grad_()
    gradient_OI = random_weight(3)
    values_OI = fake_quantize(weight_OI, scales_OG, grid.zeros_OG, spec)
    found = torch.autograd.grad(values_OI, (weight_OI, scales_OG), gradient_OI)
    num_beyond = 0
    for row in range(4):
        for group in range(4):
            columns = slice(8 * group, 8 * group + 8)
            expected = fake_quantized_group(
                weight_OI[row, columns].tolist(),
                gradient_OI[row, columns].tolist(),
                float(grid.scales_OG[row, group]),
                float(grid.zeros_OG[row, group]),
                bits,
            )
            assert values_OI[row, columns].tolist() == pytest.approx(expected.values, abs=1e-12)
            assert found[0][row, columns].tolist() == expected.weight_gradients
            assert float(found[1][row, group]) == pytest.approx(expected.scale_gradient, abs=1e-9)
            num_beyond += expected.weight_gradients.count(0.0)
    assert num_beyond > 0


def test_fp8_passes_gradients_up_to_its_largest_number() -> None:
    spec = WeightSpec(dtype="fp8")
    weight_OI = torch.tensor([[1.0, 440.0, 449.0, -500.0]], requires_grad=True)
    scales_OG, zeros_OG = torch.ones(1, 1), torch.zeros(1, 1)
    values_OI = fake_quantize(weight_OI, scales_OG, zeros_OG, spec)
    assert values_OI.tolist() == [[1.0, 448.0, 448.0, -448.0]]
    (gradient_OI,) = torch.autograd.grad(values_OI.sum(), weight_OI)
    assert gradient_OI.tolist() == [[1.0, 1.0, 0.0, 0.0]]
