"""LayerPair: a layer of the student beside what it stands for, and losses of such pairs.

Shapes: B rows, T tokens, N targets, D hidden size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from paredown.distill.batch import Batch
from paredown.distill.features.trace import Trace


@dataclass(frozen=True, kw_only=True)
class LayerPair:
    """Layer `index` of the student, and the teacher's that is compared inside (layer_map.py).
    `state_BTD` is the teacher's state that belongs to the student's output."""

    index: int
    own: Trace
    taught: Trace
    state_BTD: Tensor


class PairLoss(Protocol):
    """A loss of features, summed over all layers. `parameters` are trained beside the student."""

    @property
    def parameters(self) -> Mapping[str, Tensor]: ...

    def of_embedding(self, own_BTD: Tensor, taught_BTD: Tensor, batch: Batch) -> Tensor:
        """Returns what the states before the first layer add to the loss of each target, [N]."""
        ...

    def of_layer(self, pair: LayerPair, batch: Batch) -> Tensor:
        """Returns what a layer adds to the loss of each target, [N]. It is called by several
        threads, and may be called twice for one pair (forward.py)."""
        ...


def at_targets(values_BTD: Tensor, batch: Batch) -> Tensor:
    """Returns the values at the places of the targets, [N, D]."""
    return values_BTD.flatten(0, 1)[batch.places()]
