"""Weights: each matrix of the student, through learned linear maps, is to be the teacher's.

    mean over the matrices of |L W R^T - V|^2 / |V|^2

W is a matrix of the student's layer and V the one of the same role in the teacher's (layer_map.py).
L and R lead from the student's rows and columns to the teacher's. Rows and columns are the hidden
state, the query heads, the key-value heads, or the neurons of the MLP; there is one map for each of
these four in the whole model. With maps of their own all matrices could be met without learning.

The tables of tokens are left out: the loss of logits sees them all. Shapes: O, I rows and columns
of the student, P, J of the teacher.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.features.layer_map import Inside, LayerMap
from paredown.distill.features.projection import check_not_wider
from paredown.distill.features.wide import wide
from paredown.distill.objective import LogitObjective
from paredown.errors import UnsupportedError
from paredown.models.decoder.decoder import Decoder
from paredown.spec.experts import split_role
from paredown.spec.model import ModelSpec

HIDDEN, QUERIES, KEYS, NEURONS = "states", "queries", "keys", "neurons"
# What the rows and the columns of a matrix are.
_SIDES = {
    "q": (QUERIES, HIDDEN),
    "k": (KEYS, HIDDEN),
    "v": (KEYS, HIDDEN),
    "o": (HIDDEN, QUERIES),
    "gate": (NEURONS, HIDDEN),
    "up": (NEURONS, HIDDEN),
    "down": (HIDDEN, NEURONS),
}


@dataclass(frozen=True, kw_only=True)
class WeightObjective:
    """Implements Objective by a loss of logits and `weight` times that of the weights, for each
    target."""

    logits: LogitObjective
    teacher: Decoder
    maps: Mapping[str, Tensor]
    weight: float
    layer_map: LayerMap

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        return {f"features.{side}": one for side, one in self.maps.items()}

    def total(
        self, student: Decoder, batch: Batch, arithmetic: Arithmetic, *, recomputes: bool
    ) -> Tensor:
        total = self.logits.total(student, batch, arithmetic, recomputes=recomputes)
        with computing(arithmetic, batch.device_type):
            features = self._mean(student)
        return total + batch.num_targets * self.weight * features

    def _mean(self, student: Decoder) -> Tensor:
        losses = list[Tensor]()
        for index, layer in enumerate(student.layers):
            taught = self.teacher.layers[self.layer_map.inner(index)]
            for role in student.spec.linear_shapes(index):
                left_PO, right_JI = (self.maps[side] for side in sides(role))
                own_OI, taught_PJ = (_matrix(one, role) for one in (layer, taught))
                losses.append(weight_loss(own_OI, taught_PJ, left_PO, right_JI))
        return torch.stack(losses).mean()


def _matrix(layer: nn.Module, role: str) -> Tensor:
    linear = layer.get_submodule(role)
    assert isinstance(linear, nn.Linear)
    return linear.weight


def weight_loss(own_OI: Tensor, taught_PJ: Tensor, left_PO: Tensor, right_JI: Tensor) -> Tensor:
    """Returns the loss of one matrix, a scalar."""
    taught_PJ = wide(taught_PJ)
    least = torch.finfo(taught_PJ.dtype).tiny
    distance_PJ = wide(left_PO @ own_OI @ right_JI.T) - taught_PJ
    return distance_PJ.square().sum() / taught_PJ.square().sum().clamp(min=least)


def sides(role: str) -> tuple[str, str]:
    """Returns what the rows and columns of that matrix are."""
    return _SIDES[split_role(role)[1]]


def side_sizes(
    student: ModelSpec, teacher: ModelSpec, inside: Inside
) -> dict[str, tuple[int, int]]:
    """Returns the rows and columns of each map: the teacher's number and the student's. Raises
    UnsupportedError where the student has more of anything than its teacher, other matrices, or
    layers of different sizes."""
    layer_map = LayerMap.of(student, teacher, inside)
    found: dict[str, tuple[int, int]] = {}
    for index in range(student.num_layers):
        own = student.linear_shapes(index)
        taught = teacher.linear_shapes(layer_map.inner(index))
        if own.keys() != taught.keys():
            raise UnsupportedError(
                "weights can be compared only where both models have the same matrices",
                seen=", ".join(sorted(own.keys() ^ taught.keys())),
                remedy="Give another method, as --method tinybert.",
            )
        for role, shape in own.items():
            for side, *sizes in zip(sides(role), taught[role], shape, strict=True):
                num_taught, num_own = sizes
                check_not_wider(f"columns of {side}", num_own, num_taught)
                if found.setdefault(side, (num_taught, num_own)) != (num_taught, num_own):
                    raise UnsupportedError(
                        "weights can be compared only where all layers have the same sizes",
                        seen=f"{num_own:,} and {found[side][1]:,} {side}",
                        remedy="Give another method, as --method tinybert.",
                    )
    return found
