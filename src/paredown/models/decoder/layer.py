"""Layer: one transformer layer of the PyTorch decoder.

Shapes: B sequences, T tokens, D hidden size, H query heads, K key-value heads, O columns of all
query heads, C columns of a head, N tokens of an expert, E experts, S tokens of an encoder.
"""

import torch
from torch import Tensor, nn

from paredown.errors import UnsupportedError
from paredown.models.decoder.attention import HeadMixer, Positions, position_inputs
from paredown.models.decoder.mixture_of_experts import ExpertMixer, mix
from paredown.models.decoder.mlp import activate
from paredown.models.decoder.norms import make_norm
from paredown.models.decoder.points import EXPERT_INPUT, Tap, untouched
from paredown.models.decoder.rotary import RotationTable
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.experts import SHARED, Experts, expert_owner
from paredown.spec.model import ModelSpec


class Layer(nn.Module):
    """Transformer layer number `index`. Its modules are named by their roles. With `is_fused`
    attention is a single call: several times faster, but scores and probabilities pass no tap.

    `mask_TT` is true where a query (row) may see a key (column); the layer's window narrows it.
    None is the mask of a causal layer that is fused.
    """

    def __init__(self, model: ModelSpec, index: int, sinks: AttentionSinks | None = None) -> None:
        super().__init__()
        self.spec = model.layers[index]
        self.index = index
        self.sinks = sinks
        self.tap: Tap = untouched
        self.is_fused = False
        self.mix: ExpertMixer = mix
        if model.relative_shape is not None:
            # The table that all layers share.
            self.relative_biases = nn.Parameter(torch.empty(model.relative_shape))
        sizes = self.spec.norm_sizes(model.hidden_size)
        for role, norm in self.spec.norms.by_role().items():
            self.add_module(role, make_norm(norm, sizes[role]))
        for role, (num_rows, num_columns) in model.linear_shapes(index).items():
            self._place(role, nn.Linear(num_columns, num_rows, bias=self.spec.has_bias(role)))
        for role, (num_rows, num_columns) in model.router_shapes(index).items():
            self._place(role, nn.Linear(num_columns, num_rows, bias=False))

    def forward(
        self,
        x_BTD: Tensor,
        table: RotationTable | None,
        mask_TT: Tensor | None,
        encoded_BSD: Tensor | None = None,
    ) -> Tensor:
        """`encoded_BSD` are the vectors that cross-attention reads, of texts of equal length."""
        mixed_BTO = self.mix_heads(self.normed("attention_norm", x_BTD), table, mask_TT)
        sum_BTD = self.add_attention(x_BTD, mixed_BTO)
        if self.spec.cross is not None:
            if encoded_BSD is None:
                raise UnsupportedError(
                    "the decoder of an encoder-decoder is not run on texts of its own here",
                    seen="no vectors of an encoder",
                    remedy="Generate with it, compress it, or measure it (`paredown eval`).",
                )
            sum_BTD = self.add_cross(sum_BTD, encoded_BSD)
        return self.add_mlp(sum_BTD, x_BTD)

    def positions(self, num_tokens: int) -> Positions:
        """Returns the rotation table and the mask of the first `num_tokens` tokens."""
        return position_inputs(self.spec.attention, num_tokens, self.sinks)

    def normed(self, role: str, x: Tensor) -> Tensor:
        """Applies the norm of that role, or returns `x` unchanged where the layer has none."""
        return self.get_submodule(role)(x) if role in self._modules else x

    def add_attention(self, x_BTD: Tensor, mixed_BTO: Tensor) -> Tensor:
        """Returns the residual after attention, from the layer's input and the output of
        `mix_heads`."""
        attention_BTD = self.tap("attention_output", self.project(mixed_BTO))
        sum_BTD = self._added(x_BTD, "attention_output_norm", attention_BTD)
        return self.normed("attention_sum_norm", self.tap("attention_sum", sum_BTD))

    def add_cross(self, x_BTD: Tensor, encoded_BSD: Tensor) -> Tensor:
        """Returns the residual after cross-attention, in which each token sees all of the
        encoder's."""
        q_BHTC = self.cross_queries(x_BTD)
        return self.add_mixed_cross(x_BTD, self.mix_cross(q_BHTC, *self.cross_heads(encoded_BSD)))

    def cross_queries(self, x_BTD: Tensor) -> Tensor:
        """Returns the queries of cross-attention, [B, H, T, C], from the residual before it."""
        normed_BTD = self.tap("cross_input", self.normed("cross_norm", x_BTD))
        return self.split_cross("cross_q", normed_BTD)

    def cross_heads(self, encoded_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the keys and values of cross-attention, [B, K, S, C]."""
        encoded_BSD = self.tap("cross_encoded", encoded_BSD)
        return self.split_cross("cross_k", encoded_BSD), self.split_cross("cross_v", encoded_BSD)

    def mix_cross(self, q_BHTC: Tensor, k_BKSC: Tensor, v_BKSC: Tensor) -> Tensor:
        """Computes cross-attention up to the point "cross_o_input", [B, T, O]."""
        assert self.spec.cross is not None
        mask_TS = torch.ones(
            q_BHTC.shape[2], k_BKSC.shape[2], dtype=torch.bool, device=q_BHTC.device
        )
        mixer = HeadMixer(
            attention=self.spec.cross,
            sinks=None,
            tap=lambda point, x: self.tap(f"cross_{point}", x),
            is_fused=self.is_fused,
        )
        return mixer.mix(q_BHTC, k_BKSC, v_BKSC, (None, mask_TS))

    def add_mixed_cross(self, x_BTD: Tensor, mixed_BTO: Tensor) -> Tensor:
        """Returns the residual after cross-attention, from that before it and the output of
        `mix_cross`."""
        y_BTD = self.apply_linear("cross_o", self.tap("cross_o_input", mixed_BTO))
        return x_BTD + self.tap("cross_output", y_BTD)

    def add_mlp(self, sum_BTD: Tensor, x_BTD: Tensor | None = None) -> Tensor:
        """Returns the layer's output from the residual after attention. A parallel layer also needs
        its own input, `x_BTD`."""
        read_BTD = sum_BTD
        if self.spec.is_parallel:
            assert x_BTD is not None
            read_BTD = x_BTD
        normed_BTD = self.normed(self.spec.mlp_norm_role, read_BTD)
        y_BTD = self.tap("mlp_output", self.mlp(normed_BTD))
        sum_BTD = self._added(sum_BTD, "mlp_output_norm", y_BTD)
        return self.normed("mlp_sum_norm", self.tap("mlp_sum", sum_BTD))

    def attention(
        self, x_BTD: Tensor, table: RotationTable | None, mask_TT: Tensor | None
    ) -> Tensor:
        return self.project(self.mix_heads(x_BTD, table, mask_TT))

    def project(self, mixed_BTO: Tensor) -> Tensor:
        return self.apply_linear("o", self.tap("o_input", mixed_BTO))

    def mix_heads(
        self, x_BTD: Tensor, table: RotationTable | None, mask_TT: Tensor | None
    ) -> Tensor:
        """Computes attention up to the point "o_input", with all heads of a token side by side."""
        q_BHTC, k_BKTC, v_BKTC = self.all_heads(x_BTD)
        relative = self.spec.attention.relative
        mixer = HeadMixer(
            attention=self.spec.attention,
            sinks=self.sinks,
            tap=self.tap,
            is_fused=self.is_fused,
            biases_RH=None if relative is None else self.relative_biases,
        )
        return mixer.mix(q_BHTC, k_BKTC, v_BKTC, (table, mask_TT))

    def all_heads(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values [B, heads, T, C], not rotated yet."""
        x_BTD = self.tap("attention_input", x_BTD)
        return self.heads("q", x_BTD), self.heads("k", x_BTD), self.heads("v", x_BTD)

    def heads(self, role: str, x_BTD: Tensor) -> Tensor:
        """Returns a projection, normed and split into heads: [B, heads, T, C]."""
        x_BTO, attention = self.apply_linear(role, x_BTD), self.spec.attention
        if attention.norms_span_heads:
            x_BTO = self.normed(f"{role}_norm", x_BTO)
        x_BHTC = x_BTO.view(*x_BTO.shape[:2], -1, attention.head_dim).transpose(1, 2)
        return x_BHTC if attention.norms_span_heads else self.normed(f"{role}_norm", x_BHTC)

    def split_cross(self, role: str, x_BTD: Tensor) -> Tensor:
        """Returns a projection of cross-attention split into heads: [B, heads, T, C]."""
        assert self.spec.cross is not None
        x_BTO = self.apply_linear(role, x_BTD)
        return x_BTO.view(*x_BTO.shape[:2], -1, self.spec.cross.head_dim).transpose(1, 2)

    def mlp(self, x_BTD: Tensor) -> Tensor:
        x_BTD = self.tap("mlp_input", x_BTD)
        experts = self.spec.mlp
        if not isinstance(experts, Experts):
            return self.run_mlp("", x_BTD)
        x_ND = x_BTD.flatten(0, 1)
        logits_NE = self.apply_linear("router", x_ND)
        y_BTD = self.mix(x_ND, logits_NE, experts, self.run_expert).view_as(x_BTD)
        if experts.shared_size is not None:
            share_BT1 = self.apply_linear("shared_gate", x_BTD).sigmoid()
            y_BTD = y_BTD + share_BT1 * self.run_mlp(f"{SHARED}.", x_BTD)
        return y_BTD

    def run_expert(self, expert: int, x_ND: Tensor) -> Tensor:
        owner = f"{expert_owner(expert)}."
        return self.run_mlp(owner, self.tap(f"{owner}{EXPERT_INPUT}", x_ND))

    def run_mlp(self, owner: str, x: Tensor) -> Tensor:
        """Runs the layer's MLP, or that of an expert ("experts.5.", "shared.")."""
        mlp = self.spec.mlp
        up = self.apply_linear(f"{owner}up", x)
        if mlp.is_gated:
            up = activate(self.apply_linear(f"{owner}gate", x), mlp.activation) * up
        else:
            up = activate(up, mlp.activation)
        return self.apply_linear(f"{owner}down", self.tap(f"{owner}down_input", up))

    def apply_linear(self, role: str, x: Tensor) -> Tensor:
        y: Tensor = self.get_submodule(role)(x)
        return y

    def _added(self, sum_BTD: Tensor, norm_role: str, y_BTD: Tensor) -> Tensor:
        y_BTD = self.normed(norm_role, y_BTD)
        multiplier = self.spec.residual_multiplier
        return sum_BTD + (y_BTD if multiplier == 1 else multiplier * y_BTD)

    def _place(self, role: str, module: nn.Module) -> None:
        """Registers a module so that `get_submodule` finds it by its role; "experts.5.gate" needs
        two parents."""
        *owners, own = role.split(".")
        place: nn.Module = self
        for name in owners:
            if not hasattr(place, name):
                place.add_module(name, nn.Module())
            place = place.get_submodule(name)
        place.add_module(own, module)
