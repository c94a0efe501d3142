"""Calibration of experts that saw few tokens, or none.

The router decides which tokens an expert sees. Unless these are many times the columns, second
moments are unreliable, and GPTQ can do harm by trusting them. They are therefore shrunk towards
the identity (Ledoit and Wolf, 2004). With N tokens, I columns, and m the mean of H's diagonal:

    H + 0.5 (I / N) m Id

The added term fades as tokens come. Without any token the result is the identity: GPTQ then rounds
to nearest, and AQLM fits the weights alone. docs/internals/experts.md shows the gain.
"""

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor

from paredown.compress.calibrate.input_statistics import InputStatistics
from paredown.compress.quantize.method import Moments
from paredown.models.decoder.points import input_point
from paredown.spec.experts import EXPERTS, expert_index, split_role
from paredown.units import format_ranges

# Measured on inputs of the built-in model (benchmarks/few_tokens.py): losses are alike from 0.3 to
# 1, and never above those of round to nearest.
SHRINKAGE = 0.5


class ExpertStatistics(InputStatistics):
    """The shrunk statistics of one expert. If it saw fewer tokens than it has columns, `largest`
    is that of `all_experts`, the statistics of all the layer's experts at the same place."""

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


def shrunk(moments: Moments | None, num_columns: int, shrinkage: float = SHRINKAGE) -> Moments:
    """Returns the moments of one expert with a share of their mean diagonal added. None stands for
    an expert that saw no token; it gets the identity."""
    if moments is None:
        return Moments(hessian_II=torch.eye(num_columns), num_rows=0)
    hessian_II = moments.hessian_II.clone()
    added = shrinkage * num_columns / moments.num_rows * hessian_II.diagonal().mean()
    hessian_II.diagonal().add_(added)
    return Moments(hessian_II=hessian_II, num_rows=moments.num_rows)


def expert_statistics(point: str, seen: Mapping[str, InputStatistics]) -> ExpertStatistics:
    """Returns the statistics of an expert's point, from those of all points."""
    return ExpertStatistics(seen[point], [seen[one] for one in _same_place(point, seen)])


class FewTokens:
    """Records which experts of a layer saw few tokens, and what that means for them."""

    def __init__(self) -> None:
        self._experts: dict[str, set[int]] = {}

    def add(self, role: str, seen: InputStatistics, blind: str, *, has_static_scale: bool) -> None:
        """Adds an expert. `blind` says what the method does without any input."""
        expert = expert_index(role)
        if expert is None or seen.num_rows >= seen.num_columns:
            return
        done = [] if not seen.wants_hessian else [blind]
        if seen.num_rows and done:
            done = [f"a Hessian shrunk towards {blind}"]
        if has_static_scale:
            done.append("the input scale of all experts")
        few = "no token" if seen.num_rows == 0 else "fewer tokens than columns"
        self._experts.setdefault(f"saw {few}: {', '.join(done)}", set()).add(expert)

    def notes(self) -> list[str]:
        return [f"{_names(experts)} {what}" for what, experts in self._experts.items()]


def unseen_experts(roles: Iterable[str], seen: Collection[str], what: str) -> list[str]:
    """Returns a note on those experts of the roles that have no observation in `seen`."""
    experts = {
        index
        for role in roles
        for index in [expert_index(role)]
        if index is not None and input_point(role) not in seen
    }
    return [f"{_names(experts)} saw no token: {what}"] if experts else []


def largest_input(point: str, absmax: Mapping[str, Tensor]) -> float:
    """Returns the largest input of a point, or that of the other experts if this one saw no
    token."""
    points = [point] if point in absmax else _same_place(point, absmax)
    return max(float(absmax[one].max()) for one in points)


def _names(experts: Iterable[int]) -> str:
    return f"{EXPERTS}.{format_ranges(sorted(experts))}"


def _same_place(point: str, known: Iterable[str]) -> list[str]:
    """Returns the points at the same place in all experts."""
    place = split_role(point)[1]
    return [one for one in known if expert_index(one) is not None and split_role(one)[1] == place]
