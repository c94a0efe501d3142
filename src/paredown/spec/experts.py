"""Experts: a mixture of experts that replaces a layer's MLP, and the roles of its linear layers.

A role also locates the linear layer: "experts.5.gate" is the gate of expert 5, and "shared.up"
belongs to the expert that every token passes. The tables of the families name all experts at once,
under the key "experts.gate" (`role_kind`).
"""

from dataclasses import dataclass, replace

from paredown.spec.mlp import Activation, Mlp

EXPERTS = "experts"
SHARED = "shared"


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of experts (arXiv 2101.03961, 2401.04088).

    A router (softmax over a linear layer's outputs) sends each token to the `num_per_token` of
    `num` experts with the largest weights; ties go to the lower index. The experts' outputs are
    added with these weights, which are divided by their sum if `is_normalized`.

    `size`          columns between the halves of each expert's MLP
    `shared_size`   the same for the shared expert, whose output is multiplied by the sigmoid of a
                    linear layer with one output (Qwen2-MoE); None: there is none
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
        """One expert, as an MLP."""
        return Mlp(size=self.size, is_gated=self.is_gated, activation=self.activation)

    @property
    def shared(self) -> Mlp | None:
        """The expert that every token passes, if there is one."""
        if self.shared_size is None:
            return None
        return replace(self.expert, size=self.shared_size)

    @property
    def up_roles(self) -> tuple[str, ...]:
        """The linear layers that read an expert's input."""
        return self.expert.up_roles

    @property
    def owners(self) -> tuple[str, ...]:
        """The prefixes of all experts' roles, the shared expert last."""
        owners = tuple(expert_owner(expert) for expert in range(self.num))
        return owners if self.shared_size is None else (*owners, SHARED)

    def shapes(self, hidden_size: int, num: int | None = None) -> dict[str, tuple[int, int]]:
        """Returns the shapes (out, in) of the linear layers of the first `num` experts (None: of
        all) and of the shared one."""
        shapes: dict[str, tuple[int, int]] = {}
        for expert in range(self.num if num is None else num):
            shapes |= self.expert.shapes(hidden_size, expert_owner(expert))
        if self.shared is not None:
            shapes |= self.shared.shapes(hidden_size, SHARED)
        return shapes

    @property
    def router_roles(self) -> tuple[str, ...]:
        """The layers that route a token and are never quantized: "router", and "shared_gate" where
        there is a shared expert."""
        return ("router",) if self.shared_size is None else ("router", "shared_gate")

    def router_shapes(self, hidden_size: int) -> dict[str, tuple[int, int]]:
        """Returns the shapes (out, in) of `router_roles`."""
        num_rows = {"router": self.num, "shared_gate": 1}
        return {role: (num_rows[role], hidden_size) for role in self.router_roles}


def expert_owner(expert: int) -> str:
    """Returns the prefix of the roles of an expert's linear layers."""
    return f"{EXPERTS}.{expert}"


def split_role(role: str) -> tuple[str, str]:
    """Splits a role into its owner and the role within it: "experts.5.gate" gives ("experts.5",
    "gate"), "q" gives ("", "q")."""
    owner, _, own = role.rpartition(".")
    return owner, own


def expert_index(role: str) -> int | None:
    """Returns the number of the routed expert that a role or point belongs to, or None."""
    parts = role.split(".")
    return int(parts[1]) if parts[0] == EXPERTS and len(parts) == 3 else None


def role_kind(role: str) -> str:
    """Returns the role without the expert's number: "experts.5.gate" becomes "experts.gate"."""
    owner, own = split_role(role)
    return f"{EXPERTS}.{own}" if owner.startswith(f"{EXPERTS}.") else role
