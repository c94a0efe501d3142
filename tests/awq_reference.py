"""AWQ as its paper and its authors' code say it, group by group in float64."""

import torch
from torch import Tensor

from paredown.compress.fit_grid import fit_grid
from paredown.compress.quantize.method import Target


def round_groups(weight_OI: Tensor, target: Target) -> Tensor:
    size = target.spec.group_size or weight_OI.shape[1]
    result = weight_OI.clone()
    for row in range(weight_OI.shape[0]):
        for start in range(0, weight_OI.shape[1], size):
            group = weight_OI[row, start : start + size].reshape(1, 1, -1)
            grid = fit_grid(group, target.spec, target.scale_dtype)
            result[row, start : start + size] = grid.values(grid.codes(group)).flatten()
    return result


def scales_of(ratio: float, x_SI: Tensor, weights: list[Tensor], group_size: int) -> Tensor:
    """[I], one column at a time."""
    columns = x_SI.shape[1]
    scales = torch.zeros(columns, dtype=x_SI.dtype)
    for column in range(columns):
        x_mean = x_SI[:, column].abs().mean()
        shares = []
        start = column - column % group_size
        for weight_OI in weights:
            for row in weight_OI:
                largest = row[start : start + group_size].abs().max() + 1e-6
                shares.append(row[column].abs() / largest)
        w_mean = torch.stack(shares).mean()
        scales[column] = (x_mean**ratio / (w_mean ** (1 - ratio) + 1e-4)).clamp(min=1e-4)
    return scales / (scales.max() * scales.min()).sqrt()


def clip_group(group_C: Tensor, x_SC: Tensor, target: Target) -> Tensor:
    """The group limited to the best of eleven ranges."""
    best, result = torch.inf, group_C
    largest = group_C.abs().max()
    for step in range(11):
        limit = largest * (1 - step / 20)
        narrow = group_C.clamp(-limit, limit)
        grid = fit_grid(narrow.reshape(1, 1, -1), target.spec, target.scale_dtype)
        rounded = grid.values(grid.codes(narrow.reshape(1, 1, -1))).flatten()
        error = float((x_SC @ (rounded - group_C)).square().sum())
        if error < best:
            best, result = error, narrow
    return result
