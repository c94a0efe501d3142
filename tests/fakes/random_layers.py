"""Random linear layers with inputs that depend on each other, in float64."""

import torch
from torch import Tensor

from paredown.compress.quantize.method import Moments


def random_layer(
    num_rows: int, num_columns: int, seed: int, num_inputs: int | None = None
) -> tuple[Tensor, Tensor]:
    """A weight [O, I] and inputs [N, I] that differ in size."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mixing_II = normal(num_columns, num_columns) / num_columns**0.5 + torch.eye(num_columns)
    x_NI = normal(num_inputs or 2 * num_columns + 3, num_columns) @ mixing_II
    return normal(num_rows, num_columns), x_NI * normal(num_columns).exp()


def moments_of(x_NI: Tensor) -> Moments:
    return Moments(hessian_II=2 / x_NI.shape[0] * x_NI.T @ x_NI, num_rows=x_NI.shape[0])
