"""KeptUnits: which parts of one transformer layer stay, and which rows and columns of its weights
these are."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from paredown.spec.experts import Experts, expert_index, expert_owner, split_role
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.roles import QKV_ROLES

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class KeptUnits:
    """The parts of layer `layer` that stay, all in increasing order; what is not named stays whole.

    `heads`    key-value heads, each with its query heads
    `neurons`  columns between the halves of an MLP, by owner: "" for the layer's MLP, "experts.5",
               "shared"
    `experts`  the routed experts
    """

    layer: int
    heads: Indices | None = None
    neurons: Mapping[str, Indices] = field(default_factory=dict)
    experts: Indices | None = None

    def source_role(self, role: str) -> str:
        """Returns the role in the layer before the cut: experts are numbered anew."""
        expert = expert_index(role)
        if expert is None or self.experts is None:
            return role
        return f"{expert_owner(int(self.experts[expert]))}.{split_role(role)[1]}"

    def rows(self, role: str, layer: LayerSpec) -> Indices | None:
        """Returns the rows that stay of a linear layer, router, or norm of query or key heads; None
        if all do. `role` counts experts as before the cut, and `layer` is the layer then."""
        owner, own = split_role(role)
        attention = layer.attention
        if role in QKV_ROLES and self.heads is not None:
            num = attention.num_heads_per_group if role == "q" else 1
            return head_columns(self.heads, num * attention.head_dim)
        if own in ("gate", "up"):
            return self.neurons.get(owner)
        return self.experts if role == "router" else None

    def columns(self, role: str, layer: LayerSpec) -> Indices | None:
        """Returns the columns that stay, as `rows` does."""
        owner, own = split_role(role)
        if role == "o" and self.heads is not None:
            attention = layer.attention
            return head_columns(self.heads, attention.num_heads_per_group * attention.head_dim)
        return self.neurons.get(owner) if own == "down" else None

    def layer_spec(self, layer: LayerSpec) -> LayerSpec:
        """Returns the layer with the parts that stay."""
        attention, mlp = layer.attention, layer.mlp
        if self.heads is not None:
            num = len(self.heads)
            attention = replace(
                attention, num_kv_heads=num, num_heads=num * attention.num_heads_per_group
            )
        if isinstance(mlp, Mlp):
            mlp = replace(mlp, size=len(self.neurons[""])) if self.neurons else mlp
        else:
            mlp = self._experts(mlp)
        return replace(layer, attention=attention, mlp=mlp)

    def _experts(self, experts: Experts) -> Experts:
        if self.experts is not None:
            experts = replace(experts, num=len(self.experts))
        sizes = {owner.partition(".")[0]: len(kept) for owner, kept in self.neurons.items()}
        return replace(
            experts,
            size=sizes.get("experts", experts.size),
            shared_size=sizes.get("shared", experts.shared_size),
        )


def head_columns(groups: Indices, num_columns: int) -> Indices:
    """Returns the columns of these groups, each of which has `num_columns` side by side."""
    return (groups[:, None] * num_columns + np.arange(num_columns)).reshape(-1)
