"""Muon for the hidden matrices, AdamW for the embedding and the norms.

Muon (Jordan et al., 2024): the momentum of a matrix is replaced by the nearest semi-orthogonal
matrix, found by a Newton-Schulz iteration, so that every direction of the update has one size. The
iteration's polynomials are those of Polar Express (Amsel et al., 2025, arXiv:2505.16932).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# One odd polynomial a x + b x^3 + c x^5 per step, made for singular values in [1e-3, 1].
POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Nearest semi-orthogonal matrix of each of `matrices` (count, rows, columns), bfloat16 inside.

    Singular values come out within a few percent of one.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-6)).to(torch.bfloat16)
    for a, b, c in POLAR_EXPRESS:
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    result: Tensor = (x.mT if tall else x).float()
    return result


@dataclass(frozen=True, kw_only=True)
class MuonSettings:
    """`learning_rate` is the size of an update's singular values for a square matrix."""

    learning_rate: float = 0.016
    momentum: float = 0.95
    weight_decay: float = 0.01


@dataclass(frozen=True, kw_only=True)
class AdamSettings:
    """AdamW without decay, for the embedding and the norms."""

    learning_rate: float = 0.0025
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-10


class Muon:
    """One Muon step at a time over matrices, each of which may be several stacked by rows."""

    def __init__(self, weights: Sequence[tuple[Tensor, list[int]]], settings: MuonSettings) -> None:
        self.weights = weights
        self.settings = settings
        self.momenta = [torch.zeros_like(weight) for weight, _ in weights]

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """Update every weight from its `grad`; `factor` is the schedule's share of the rate."""
        momentum = self.settings.momentum
        by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        for (weight, rows), average in zip(self.weights, self.momenta, strict=True):
            if weight.grad is None:
                raise RuntimeError("Muon.step was called before backward: a weight has no gradient")
            average.lerp_(weight.grad, 1 - momentum)
            looked_ahead = weight.grad.lerp(average, momentum)
            targets = torch.split_with_sizes(weight, rows)
            updates = torch.split_with_sizes(looked_ahead, rows)
            for target, update in zip(targets, updates, strict=True):
                by_shape.setdefault((target.shape[0], target.shape[1]), []).append((target, update))
        for pairs in by_shape.values():
            self.apply(pairs, self.settings.learning_rate * factor)

    def apply(self, pairs: list[tuple[Tensor, Tensor]], rate: float) -> None:
        """Move targets of one shape along their orthogonalized updates."""
        rows, columns = pairs[0][0].shape
        # A tall matrix has more outputs than inputs: the larger step keeps each output's change.
        scale = max(1.0, rows / columns) ** 0.5
        directions = orthogonalize(torch.stack([update for _, update in pairs]))
        for (target, _), direction in zip(pairs, directions, strict=True):
            target.mul_(1 - rate * self.settings.weight_decay)
            target.add_(direction, alpha=-rate * scale)

    def state_dict(self) -> dict[str, Any]:
        return {"momenta": self.momenta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for mine, stored in zip(self.momenta, state["momenta"], strict=True):
            mine.copy_(stored)


def adamw(parameters: Sequence[Tensor], settings: AdamSettings) -> torch.optim.AdamW:
    """Torch's AdamW with our settings."""
    return torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=0.0,
    )
