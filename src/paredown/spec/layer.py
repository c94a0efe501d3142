"""LayerSpec: one transformer layer, its attention, its MLP or experts, and how they are added."""

from dataclasses import dataclass
from typing import Literal

from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.mlp import Mlp
from paredown.spec.norm import Norms
from paredown.spec.roles import MLP_ROLES, QKV_ROLES

Shapes = dict[str, tuple[int, int]]
Residual = Literal["sequential", "parallel", "parallel_one_norm"]


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """`residual`: in a sequential layer the MLP reads the sum after attention, in a parallel one
    (GPT-NeoX) what the layer was given. With one norm (GPT-J, Phi-2) it reads the very values that
    attention reads, and there is no `norms.mlp`. What attention and MLP give is multiplied by
    `residual_multiplier` when it is added (Granite)."""

    attention: Attention
    mlp: Mlp | Experts
    norms: Norms
    residual: Residual = "sequential"
    residual_multiplier: float = 1.0

    @property
    def is_parallel(self) -> bool:
        """Whether the MLP reads what entered the layer, not the sum after attention."""
        return self.residual != "sequential"

    @property
    def mlp_norm_role(self) -> str:
        """The norm whose output the MLP reads."""
        return "attention_norm" if self.residual == "parallel_one_norm" else "mlp_norm"

    @property
    def has_experts(self) -> bool:
        """Whether it has experts in the place of its MLP."""
        return isinstance(self.mlp, Experts)

    @property
    def experts(self) -> Experts | None:
        """The experts in the place of its MLP, if it has any."""
        return self.mlp if isinstance(self.mlp, Experts) else None

    def linear_shapes(self, hidden_size: int) -> Shapes:
        """(out, in) of each linear layer by role, those of all experts among them. A router is none
        of them (`router_shapes`)."""
        return self.attention.shapes(hidden_size) | self.mlp.shapes(hidden_size)

    def active_shapes(self, hidden_size: int) -> Shapes:
        """(out, in) of the linear layers that one token passes, of the experts as many as it is
        sent to: the first ones stand for them."""
        if not isinstance(self.mlp, Experts):
            return self.linear_shapes(hidden_size)
        chosen = self.mlp.shapes(hidden_size, self.mlp.num_per_token)
        return self.attention.shapes(hidden_size) | chosen

    def router_shapes(self, hidden_size: int) -> Shapes:
        """(out, in) of the router and its kin, none in a layer without experts."""
        return self.mlp.router_shapes(hidden_size) if isinstance(self.mlp, Experts) else {}

    def has_bias(self, role: str) -> bool:
        """Whether that linear layer has a bias: none of an expert has."""
        if role in QKV_ROLES:
            return self.attention.qkv_bias
        if role == "o":
            return self.attention.out_bias
        return role in MLP_ROLES and isinstance(self.mlp, Mlp) and self.mlp.bias

    def norm_sizes(self, hidden_size: int) -> dict[str, int]:
        """Columns that each norm is taken over, by role."""
        attention = self.attention
        of_heads = {"q_norm": attention.query_size, "k_norm": attention.kv_size}
        if not attention.norms_span_heads:
            of_heads = dict.fromkeys(of_heads, attention.head_dim)
        return {role: of_heads.get(role, hidden_size) for role in self.norms.by_role()}

    def vector_sizes(self, hidden_size: int) -> dict[str, int]:
        """Sizes of its norms and biases, by role: "attention_norm.weight", "q.bias", ..."""
        norms, sizes = self.norms.by_role(), self.norm_sizes(hidden_size)
        vectors = {
            f"{role}.{part}": sizes[role] for role, norm in norms.items() for part in norm.parts
        }
        shapes = self.attention.shapes(hidden_size)
        if isinstance(self.mlp, Mlp):
            shapes |= self.mlp.shapes(hidden_size)
        biased = {role: shape[0] for role, shape in shapes.items() if self.has_bias(role)}
        return vectors | {f"{role}.bias": size for role, size in biased.items()}
