"""LayerSpec: one transformer layer, with its attention, its MLP or experts, and its residual."""

from dataclasses import dataclass
from typing import Literal

from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.mlp import Mlp
from paredown.spec.norm import Norms
from paredown.spec.roles import CROSS_ROLES, MLP_ROLES, QKV_ROLES

Shapes = dict[str, tuple[int, int]]
Residual = Literal["sequential", "parallel", "parallel_one_norm"]


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """One transformer layer.

    `residual` says what the MLP reads: in a sequential layer the sum after attention, in a
    parallel layer (GPT-NeoX) the layer's own input. A parallel layer with one norm (GPT-J, Phi-2)
    has no `norms.mlp`: its MLP reads the same values as attention. The outputs of attention and
    MLP are multiplied by `residual_multiplier` before they are added (Granite).

    `cross` is attention to all tokens of an encoder, between attention and MLP: its queries come
    from the layer, its keys and values from the encoder's vectors (arXiv 1706.03762). Only
    sequential layers have it.
    """

    attention: Attention
    mlp: Mlp | Experts
    norms: Norms
    cross: Attention | None = None
    residual: Residual = "sequential"
    residual_multiplier: float = 1.0

    @property
    def is_parallel(self) -> bool:
        """Whether the MLP reads the layer's input instead of the sum after attention."""
        return self.residual != "sequential"

    @property
    def mlp_norm_role(self) -> str:
        """The role of the norm whose output the MLP reads."""
        return "attention_norm" if self.residual == "parallel_one_norm" else "mlp_norm"

    @property
    def has_experts(self) -> bool:
        """Whether the layer has experts in place of an MLP."""
        return isinstance(self.mlp, Experts)

    @property
    def experts(self) -> Experts | None:
        """The experts in place of its MLP, or None."""
        return self.mlp if isinstance(self.mlp, Experts) else None

    def linear_shapes(self, hidden_size: int) -> Shapes:
        """Returns the shape (out, in) of each linear layer by role, all experts included. Routers
        are not included (`router_shapes`)."""
        return self._attention_shapes(hidden_size) | self.mlp.shapes(hidden_size)

    def cross_shapes(self, hidden_size: int) -> Shapes:
        """Returns the shapes (out, in) of cross-attention: cross_q, cross_k, cross_v, cross_o;
        empty without it."""
        if self.cross is None:
            return {}
        return {f"cross_{role}": shape for role, shape in self.cross.shapes(hidden_size).items()}

    def active_shapes(self, hidden_size: int) -> Shapes:
        """Returns the shapes (out, in) of the linear layers that one token passes. The first
        experts stand for those that the token is sent to."""
        if not isinstance(self.mlp, Experts):
            return self.linear_shapes(hidden_size)
        chosen = self.mlp.shapes(hidden_size, self.mlp.num_per_token)
        return self._attention_shapes(hidden_size) | chosen

    def router_shapes(self, hidden_size: int) -> Shapes:
        """Returns the shapes (out, in) of the router's linear layers; empty without experts."""
        return self.mlp.router_shapes(hidden_size) if isinstance(self.mlp, Experts) else {}

    def has_bias(self, role: str) -> bool:
        """Returns whether that linear layer has a bias; layers of experts have none."""
        if role in QKV_ROLES:
            return self.attention.qkv_bias
        if role == "o":
            return self.attention.out_bias
        if self.cross is not None and role in CROSS_ROLES:
            return self.cross.out_bias if role == "cross_o" else self.cross.qkv_bias
        return role in MLP_ROLES and isinstance(self.mlp, Mlp) and self.mlp.bias

    def norm_sizes(self, hidden_size: int) -> dict[str, int]:
        """Returns the number of columns of each norm, by role."""
        attention = self.attention
        of_heads = {"q_norm": attention.query_size, "k_norm": attention.kv_size}
        if not attention.norms_span_heads:
            of_heads = dict.fromkeys(of_heads, attention.head_dim)
        return {role: of_heads.get(role, hidden_size) for role in self.norms.by_role()}

    def vector_sizes(self, hidden_size: int) -> dict[str, int]:
        """Returns the sizes of the norms and biases, by role: "attention_norm.weight", "q.bias",
        ..."""
        norms, sizes = self.norms.by_role(), self.norm_sizes(hidden_size)
        vectors = {
            f"{role}.{part}": sizes[role] for role, norm in norms.items() for part in norm.parts
        }
        shapes = self._attention_shapes(hidden_size)
        if isinstance(self.mlp, Mlp):
            shapes |= self.mlp.shapes(hidden_size)
        biased = {role: shape[0] for role, shape in shapes.items() if self.has_bias(role)}
        return vectors | {f"{role}.bias": size for role, size in biased.items()}

    def _attention_shapes(self, hidden_size: int) -> Shapes:
        return self.attention.shapes(hidden_size) | self.cross_shapes(hidden_size)
