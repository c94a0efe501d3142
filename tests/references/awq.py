"""AWQ as its paper and its authors' code say it, group by group in float64."""

import torch
from torch import Tensor

from paredown.compress.fit_grid import fit_grid
from paredown.compress.grid import Grid, grid_of_range
from paredown.compress.progressive_groups import most_steps, short_scales
from paredown.compress.quantize.method import LayerTarget


def round_groups(weight_OI: Tensor, target: LayerTarget) -> Tensor:
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


def clip_group(group_C: Tensor, x_SC: Tensor, target: LayerTarget) -> Tensor:
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


def search_row(row_I: Tensor, x_SI: Tensor, target: LayerTarget) -> Tensor:
    """[G]: the scales of a row's groups, of integer steps, that move its outputs the least."""
    groups_GC = row_I.view(-1, target.spec.group_size or len(row_I))
    inputs_SGC = x_SI.view(len(x_SI), *groups_GC.shape)
    lowest_G, highest_G = groups_GC.amin(1).clamp(max=0), groups_GC.amax(1).clamp(min=0)
    whole = grid_of_range(lowest_G, highest_G, target.spec, target.scale_dtype)
    most_G = most_steps(whole.zeros_OG)
    least_row = (whole.scales_OG / most_G).max()
    best, result = torch.inf, whole.scales_OG
    for share in (0.9, 1.0, 1.1, 1.2):
        row_scale = short_scales(least_row * share, target.scale_dtype)
        losses, scales = [], []
        for group, values_C in enumerate(groups_GC):
            below = float(whole.scales_OG[group] / row_scale) // 1
            found = []
            for near in (0, 1, -1, -2, -3, -4, -5, -6):
                step = min(max(below + near, 1), float(most_G[group]))
                scale = step * row_scale
                grid = Grid(
                    spec=target.spec,
                    scale_dtype=target.scale_dtype,
                    scales_OG=scale.view(1),
                    zeros_OG=whole.zeros_OG[group].view(1),
                )
                moved_C = grid.values(grid.codes(values_C[None]))[0] - values_C
                error = float((inputs_SGC[:, group] @ moved_C).square().sum())
                found.append((error, len(found), scale))
            losses.append(min(found)[0])
            scales.append(min(found)[2])
        if sum(losses) < best:
            best, result = sum(losses), torch.stack(scales)
    return result
