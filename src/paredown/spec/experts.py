"""Experts: a mixture of experts in the place of a layer's MLP, and the roles of their layers.

A role is also the way to the linear layer: "experts.5.gate" is the gate of expert 5, "shared.up"
that of the expert that every token passes. What a family's table calls them holds for all experts
at once: its key is "experts.gate" (`role_kind`).
"""

from dataclasses import dataclass, replace

from paredown.spec.mlp import Activation, Mlp

EXPERTS = "experts"
SHARED = "shared"


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A router (softmax over a linear layer's outputs) sends each token to the `num_per_token`
    experts of `num` that it gives most, ties to the lower index; their outputs are added with the
    router's weights, which `is_normalized` divides by their sum (arXiv 2101.03961, 2401.04088).

    `size`          of each expert's MLP
    `shared_size`   of the shared expert, whose output is multiplied by the sigmoid of a linear
                    layer with one output (Qwen2-MoE); None: there is none
    """

    num: int
    num_per_token: int
    size: int
    is_normalized: bool
    is_gated: bool
    activation: Activation
    shared_size: int | None = None

    @property
    def expert(self) -> Mlp:
        """What each of them is alone."""
        return Mlp(size=self.size, is_gated=self.is_gated, activation=self.activation)

    @property
    def shared(self) -> Mlp | None:
        """The expert that every token passes."""
        if self.shared_size is None:
            return None
        return replace(self.expert, size=self.shared_size)

    @property
    def up_roles(self) -> tuple[str, ...]:
        """The linear layers that read an expert's input."""
        return self.expert.up_roles

    @property
    def owners(self) -> tuple[str, ...]:
        """What the roles of their linear layers begin with, the shared expert's last."""
        owners = tuple(expert_owner(expert) for expert in range(self.num))
        return owners if self.shared_size is None else (*owners, SHARED)

    def shapes(self, hidden_size: int, num: int | None = None) -> dict[str, tuple[int, int]]:
        """(out, in) of the linear layers of the first `num` experts (None: of all), and of the
        shared one."""
        shapes: dict[str, tuple[int, int]] = {}
        for expert in range(self.num if num is None else num):
            shapes |= self.expert.shapes(hidden_size, expert_owner(expert))
        if self.shared is not None:
            shapes |= self.shared.shapes(hidden_size, SHARED)
        return shapes

    @property
    def router_roles(self) -> tuple[str, ...]:
        """What decides how a token passes, never quantized: "router", and "shared_gate" of a shared
        expert."""
        return ("router",) if self.shared_size is None else ("router", "shared_gate")

    def router_shapes(self, hidden_size: int) -> dict[str, tuple[int, int]]:
        """(out, in) of these."""
        num_rows = {"router": self.num, "shared_gate": 1}
        return {role: (num_rows[role], hidden_size) for role in self.router_roles}


def expert_owner(expert: int) -> str:
    """What the roles of an expert's linear layers begin with."""
    return f"{EXPERTS}.{expert}"


def split_role(role: str) -> tuple[str, str]:
    """Owner and role within it: "experts.5.gate" is ("experts.5", "gate"), "q" is ("", "q")."""
    owner, _, own = role.rpartition(".")
    return owner, own


def expert_index(role: str) -> int | None:
    """The number of the expert of a role or a point of one of the routed experts, else None."""
    parts = role.split(".")
    return int(parts[1]) if parts[0] == EXPERTS and len(parts) == 3 else None


def role_kind(role: str) -> str:
    """The role without the expert's number: "experts.5.gate" is "experts.gate"."""
    owner, own = split_role(role)
    return f"{EXPERTS}.{own}" if owner.startswith(f"{EXPERTS}.") else role
