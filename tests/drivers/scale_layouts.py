"""The values that share a scale in each of compressed-tensors' strategies."""

import torch


def extremes(values: torch.Tensor, weights: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the minimum and maximum of the values that share a scale, in the shape of the
    scales."""
    rows, columns = values.shape
    block = {
        "tensor": (rows, columns),
        "channel": (1, columns),
        "group": (1, weights.get("group_size") or columns),
        "block": tuple(weights.get("block_structure") or (1, 1)),
    }[weights["strategy"]]
    padded = torch.zeros(-(-rows // block[0]) * block[0], columns, dtype=values.dtype)
    padded[:rows] = values
    blocks = padded.unflatten(1, (-1, block[1])).unflatten(0, (-1, block[0])).transpose(1, 2)
    low, high = blocks.amin((2, 3)), blocks.amax((2, 3))
    return (low.reshape(1), high.reshape(1)) if weights["strategy"] == "tensor" else (low, high)
