"""Experts: a mixture of experts in the place of a layer's MLP, and the roles of their layers.

A role is also the way to the linear layer: "experts.5.gate" is the gate of expert 5, "shared.up"
that of the expert that every token passes. What a family's table calls them holds for all experts
at once: its key is "experts.gate" (`role_kind`).
"""

from dataclasses import dataclass

EXPERTS = "experts"
SHARED = "shared"


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A router (softmax over a linear layer's outputs) sends each token to the `num_per_token`
    experts of `num` that it gives most, ties to the lower index; their outputs are added with the
    router's weights, which `is_normalized` divides by their sum (arXiv 2101.03961, 2401.04088).

    `intermediate_size`         of each expert's MLP
    `shared_intermediate_size`  of the shared expert, whose output is multiplied by the sigmoid of a
                                linear layer with one output (Qwen2-MoE); None: there is none
    `expert_layer_step`         every layer whose number, counted from 1, is a multiple has them
    `dense_layers`              but for these, counted from 0
    """

    num: int
    num_per_token: int
    intermediate_size: int
    is_normalized: bool
    shared_intermediate_size: int | None = None
    expert_layer_step: int = 1
    dense_layers: frozenset[int] = frozenset()

    def has_experts(self, layer: int) -> bool:
        """Whether that layer, counted from 0, has experts."""
        return layer not in self.dense_layers and (layer + 1) % self.expert_layer_step == 0


def expert_owner(expert: int) -> str:
    """What the roles of an expert's linear layers begin with."""
    return f"{EXPERTS}.{expert}"


def split_role(role: str) -> tuple[str, str]:
    """Owner and role within it: "experts.5.gate" is ("experts.5", "gate"), "q" is ("", "q")."""
    owner, _, own = role.rpartition(".")
    return owner, own


def expert_index(role: str) -> int | None:
    """Of a role or a point of one of the routed experts, else None."""
    parts = role.split(".")
    return int(parts[1]) if parts[0] == EXPERTS and len(parts) == 3 else None


def role_kind(role: str) -> str:
    """The role without the expert's number: "experts.5.gate" is "experts.gate"."""
    owner, own = split_role(role)
    return f"{EXPERTS}.{own}" if owner.startswith(f"{EXPERTS}.") else role
