"""Counts the zeros of the linear modules of a written checkpoint."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from paredown.models.checkpoint import Checkpoint
from paredown.models.roles import linear_places


@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """`zeros` and `weights` count by module, in the written files. Weights that were 0 before
    count too."""

    zeros: dict[str, int]
    weights: dict[str, int]

    @property
    def share(self) -> float:
        """The share of zeros among the weights of all these modules together."""
        return sum(self.zeros.values()) / sum(self.weights.values())

    def as_json(self) -> dict[str, object]:
        shares = {name: count / self.weights[name] for name, count in self.zeros.items()}
        return {"share": self.share, "modules": shares}


def count_zeros(written: Checkpoint, modules: Iterable[str]) -> Sparsity | None:
    """Counts the zeros among the values of `modules`; None where there are none to count."""
    wanted = set(modules)
    zeros: dict[str, int] = {}
    weights: dict[str, int] = {}
    for role, layer in linear_places(written.spec):
        name = written.linear_name(role, layer)
        if name in wanted:
            values_OI = written.linear(role, layer).dequantize()
            zeros[name] = zeros.get(name, 0) + int(np.count_nonzero(values_OI == 0))
            weights[name] = weights.get(name, 0) + values_OI.size
            written.release()
    if written.names.output in wanted:
        values_VD = written.output().dequantize()
        zeros[written.names.output] = int(np.count_nonzero(values_VD == 0))
        weights[written.names.output] = values_VD.size
    return Sparsity(zeros=zeros, weights=weights) if weights else None
