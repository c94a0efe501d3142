"""What calibration makes of experts that saw few tokens, or none.

The router decides which tokens an expert is shown. Where these are not many times the columns,
second moments are known badly, and GPTQ that believes them can do harm. So they are shrunk towards
the identity (Ledoit and Wolf, 2004): of N tokens and I columns, with m the mean of H's diagonal,

    H + 0.5 (I / N) m Id

which fades as tokens come. Without any token it is the identity: all inputs alike, by which GPTQ is
round to nearest and AQLM fits the weights alone. docs/experts.md has what it gains.
"""

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor

from paredown.compress.calibrate.input_statistics import InputStatistics
from paredown.compress.quantize.method import Moments
from paredown.models.decoder import input_point
from paredown.spec.experts import expert_index, expert_owner, split_role

# Measured on inputs of the built-in model (benchmarks/calibration/few_tokens.py): from 0.3 to 1 the
# losses are alike, and never above those of round to nearest.
_SHRINKAGE = 0.5


class ExpertStatistics(InputStatistics):
    """Of one expert, shrunk. Where it saw fewer tokens than it has columns, `largest` is that of
    `all_experts`, all those of the layer at the same place."""

    def __init__(self, own: InputStatistics, all_experts: Iterable[InputStatistics]) -> None:
        super().__init__(own.num_columns)
        self.wants_hessian = own.wants_hessian
        self.num_rows = own.num_rows
        self.largest = own.largest
        if own.num_rows < own.num_columns:
            self.largest = max(one.largest for one in all_experts)
        self._own = own

    def moments(self) -> Moments | None:
        return shrunk(self._own.moments(), self.num_columns) if self.wants_hessian else None


def shrunk(moments: Moments | None, num_columns: int) -> Moments:
    """None stands for those of no token."""
    if moments is None:
        return Moments(hessian_II=torch.eye(num_columns), num_rows=0)
    hessian_II = moments.hessian_II.clone()
    added = _SHRINKAGE * num_columns / moments.num_rows * hessian_II.diagonal().mean()
    hessian_II.diagonal().add_(added)
    return Moments(hessian_II=hessian_II, num_rows=moments.num_rows)


def expert_statistics(point: str, seen: Mapping[str, InputStatistics]) -> ExpertStatistics:
    """Of an expert's point, out of those of all points."""
    return ExpertStatistics(seen[point], [seen[one] for one in _same_place(point, seen)])


def few_tokens(role: str, seen: InputStatistics, instead: str) -> str | None:
    """A note where the expert saw fewer tokens than it has columns; `instead` is what the method
    does without any."""
    owner, _ = split_role(role)
    if seen.num_rows == 0:
        return f"{owner} saw no token: {instead}"
    if seen.num_rows < seen.num_columns:
        return (
            f"{owner} saw {seen.num_rows} tokens, fewer than {seen.num_columns} columns: "
            f"a Hessian shrunk towards {instead}"
        )
    return None


def unseen_experts(roles: Iterable[str], seen: Collection[str], what: str) -> list[str]:
    """A note for each expert of these roles without an observation among `seen`, by point."""
    experts = dict.fromkeys(
        index
        for role in roles
        for index in [expert_index(role)]
        if index is not None and input_point(role) not in seen
    )
    return [f"{expert_owner(index)} saw no token: {what}" for index in experts]


def largest_input(point: str, absmax: Mapping[str, Tensor]) -> float:
    """Of a point, or of the other experts' where this one saw no token."""
    points = [point] if point in absmax else _same_place(point, absmax)
    return max(float(absmax[one].max()) for one in points)


def _same_place(point: str, known: Iterable[str]) -> list[str]:
    """The points of all experts where this one's is."""
    place = split_role(point)[1]
    return [one for one in known if expert_index(one) is not None and split_role(one)[1] == place]
