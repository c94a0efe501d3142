"""The PyTorch decoder: the readable reference that every other executor is compared with.

Shapes: B sequences, T tokens, D hidden size, H query heads, K key-value heads, F intermediate
size, C columns of a head, V vocabulary. Everything is float32 and nothing is cached.

Whatever flows between two operations passes a point with a name, where a tap may look at it or put
other values in its place: calibration gathers statistics there, and a quantizer of activations
rounds there. An expert's points bear its name ("experts.5.down_input"), and what flows there are
the rows of the tokens that were sent to it, [N, I]; one that no token was sent to passes none.
"""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.mixture_of_experts import mix
from paredown.models.roles import has_bias, layer_vectors, linear_roles, model_vectors
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.experts import SHARED, expert_owner, split_role
from paredown.spec.model import LearnedPositions, ModelSpec, Rotary

# Called with a point's name and the values there; what it returns goes on in their place.
Tap = Callable[[str, Tensor], Tensor]

# Of a layer, in the order they are passed. q, k and v are heads, after norms and rotation; scores
# are the softmax's input and probabilities its output.
LAYER_POINTS = (
    "attention_input",
    "q",
    "k",
    "v",
    "scores",
    "probabilities",
    "o_input",
    "attention_output",
    "attention_sum",
    "mlp_input",
    "down_input",
    "mlp_output",
    "mlp_sum",
)
# Of the whole model: the sum of embeddings before the first layer, the last norm's output, the
# logits.
MODEL_POINTS = ("embedding", "output_input", "logits")

# Where each linear layer of a transformer layer finds its input.
INPUT_POINTS = {
    "q": "attention_input",
    "k": "attention_input",
    "v": "attention_input",
    "o": "o_input",
    "gate": "mlp_input",
    "up": "mlp_input",
    "down": "down_input",
}
# What one expert is given, [N, D].
EXPERT_INPUT = "input"


def input_point(role: str) -> str:
    """Where a linear layer finds its input, those of experts too. The shared expert is given what
    the router is."""
    owner, own = split_role(role)
    point = INPUT_POINTS[own]
    if not owner or (owner == SHARED and point == "mlp_input"):
        return point
    return f"{owner}.{EXPERT_INPUT if point == 'mlp_input' else point}"


def last_point(points: Iterable[str]) -> str:
    """Where a pass may end that is to see these: of experts, when all of them have run."""
    return max(
        ("mlp_output" if "." in point else point for point in points), key=LAYER_POINTS.index
    )


def untouched(point: str, x: Tensor) -> Tensor:
    """The tap of a model that nobody watches."""
    return x


class RMSNorm(nn.Module):
    """RMSNorm (arXiv 1910.07467): x / rms(x) * weight, over the last dimension."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def make_norm(spec: ModelSpec, size: int) -> nn.Module:
    if spec.norm == "rms":
        return RMSNorm(size, spec.norm_eps)
    return nn.LayerNorm(size, eps=spec.norm_eps)


def activate(x: Tensor, spec: ModelSpec) -> Tensor:
    if spec.activation == "silu":
        return functional.silu(x)
    if spec.activation == "relu":
        return functional.relu(x)
    return functional.gelu(x, approximate="tanh" if spec.activation == "gelu_tanh" else "none")


def rotation_table(
    rotary: Rotary, head_dim: int, num_tokens: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Cosines and sines, [T, C]; both halves of a head turn by the same angles, which are found in
    `dtype`: beyond the context of a model float32 is not enough."""
    frequencies = torch.tensor(rotary.inverse_frequencies(head_dim), dtype=torch.float32)
    angles = torch.arange(num_tokens, dtype=dtype)[:, None] * frequencies
    angles_TC = torch.cat([angles, angles], dim=-1)
    return angles_TC.cos().float(), angles_TC.sin().float()


def rotate(x_BHTC: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding, rotate-half form: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin)."""
    cos_TC, sin_TC = table
    first, second = x_BHTC.chunk(2, dim=-1)
    return x_BHTC * cos_TC + torch.cat([-second, first], dim=-1) * sin_TC


class Layer(nn.Module):
    """Transformer layer number `index`. Its modules carry the names of their roles. With `is_fused`
    attention is one call, several times faster, and its scores and probabilities pass no tap.

    `mask_TT` is true where a query (row) may see a key (column); the layer's window narrows it.
    """

    def __init__(self, spec: ModelSpec, index: int) -> None:
        super().__init__()
        self.spec = spec
        self.index = index
        self.window = spec.layer_window(index)
        self.experts_of_layer = spec.experts if spec.has_experts(index) else None
        self.tap: Tap = untouched
        self.is_fused = False
        self.attention_norm = make_norm(spec, spec.hidden_size)
        self.mlp_norm = make_norm(spec, spec.hidden_size)
        if spec.qk_norm:
            self.q_norm = make_norm(spec, spec.head_dim)
            self.k_norm = make_norm(spec, spec.head_dim)
        for role, (num_rows, num_columns) in spec.linear_shapes(index).items():
            self._place(role, nn.Linear(num_columns, num_rows, bias=has_bias(spec, role)))
        for role, (num_rows, num_columns) in spec.router_shapes(index).items():
            self._place(role, nn.Linear(num_columns, num_rows, bias=False))

    def forward(
        self, x_BTD: Tensor, table: tuple[Tensor, Tensor] | None, mask_TT: Tensor
    ) -> Tensor:
        mixed_BTO = self.mix_heads(self.attention_norm(x_BTD), table, mask_TT)
        return self.add_mlp(self.add_attention(x_BTD, mixed_BTO))

    def add_attention(self, x_BTD: Tensor, mixed_BTO: Tensor) -> Tensor:
        """What enters the layer and what `mix_heads` makes of it, to the sum after attention."""
        attention_BTD = self.tap("attention_output", self.project(mixed_BTO))
        return self.tap("attention_sum", x_BTD + attention_BTD)

    def add_mlp(self, x_BTD: Tensor) -> Tensor:
        """The sum after attention to what leaves the layer."""
        return self.tap("mlp_sum", x_BTD + self.tap("mlp_output", self.mlp(self.mlp_norm(x_BTD))))

    def attention(
        self, x_BTD: Tensor, table: tuple[Tensor, Tensor] | None, mask_TT: Tensor
    ) -> Tensor:
        return self.project(self.mix_heads(x_BTD, table, mask_TT))

    def project(self, mixed_BTO: Tensor) -> Tensor:
        return self.apply_linear("o", self.tap("o_input", mixed_BTO))

    def mix_heads(
        self, x_BTD: Tensor, table: tuple[Tensor, Tensor] | None, mask_TT: Tensor
    ) -> Tensor:
        """Attention up to the point "o_input", all heads of a token side by side."""
        spec, tap = self.spec, self.tap
        x_BTD = tap("attention_input", x_BTD)
        num_groups = spec.num_heads // spec.num_kv_heads
        q_BHTC = self.heads("q", x_BTD)
        k_BKTC = self.heads("k", x_BTD)
        v_BKTC = self.heads("v", x_BTD)
        if spec.qk_norm:
            q_BHTC, k_BKTC = self.q_norm(q_BHTC), self.k_norm(k_BKTC)
        unturned_BHTC = q_BHTC
        if table is not None:
            q_BHTC, k_BKTC = rotate(q_BHTC, table), rotate(k_BKTC, table)
        q_BHTC, k_BKTC, v_BKTC = tap("q", q_BHTC), tap("k", k_BKTC), tap("v", v_BKTC)
        k_BHTC = k_BKTC.repeat_interleave(num_groups, dim=1)
        v_BHTC = v_BKTC.repeat_interleave(num_groups, dim=1)
        mask_TT = self.visible(mask_TT)
        if self.is_fused:
            assert spec.sinks is None
            mixed_BHTC = functional.scaled_dot_product_attention(q_BHTC, k_BHTC, v_BHTC, mask_TT)
        else:
            scores_BHTT = q_BHTC @ k_BHTC.transpose(-1, -2) * spec.head_dim**-0.5
            if spec.sinks is not None and table is not None:
                q_BHTC = rotate(unturned_BHTC, table_in_cache(table, spec.sinks))
                sinks_BHSC = k_BHTC[:, :, : spec.sinks.num_sink_tokens]
                scores_BHTS = q_BHTC @ sinks_BHSC.transpose(-1, -2) * spec.head_dim**-0.5
                scores_BHTT[..., : spec.sinks.num_sink_tokens] = scores_BHTS
            scores_BHTT = tap("scores", scores_BHTT)
            weights_BHTT = scores_BHTT.masked_fill(~mask_TT, -torch.inf).softmax(dim=-1)
            mixed_BHTC = tap("probabilities", weights_BHTT) @ v_BHTC
        return mixed_BHTC.transpose(1, 2).flatten(2)

    def visible(self, mask_TT: Tensor) -> Tensor:
        """The mask less what lies before the window and is no sink."""
        if self.window is None:
            return mask_TT
        far_TT = torch.ones_like(mask_TT).tril(-self.window)
        far_TT[:, : self.spec.num_sink_tokens] = False
        return mask_TT & ~far_TT

    def heads(self, role: str, x_BTD: Tensor) -> Tensor:
        """A projection split into heads: [B, heads, T, C]."""
        x_BTO = self.apply_linear(role, x_BTD)
        return x_BTO.view(*x_BTO.shape[:2], -1, self.spec.head_dim).transpose(1, 2)

    def mlp(self, x_BTD: Tensor) -> Tensor:
        x_BTD = self.tap("mlp_input", x_BTD)
        if self.experts_of_layer is None:
            return self.run_mlp("", x_BTD)
        x_ND = x_BTD.flatten(0, 1)
        logits_NE = self.apply_linear("router", x_ND)
        y_BTD = mix(x_ND, logits_NE, self.experts_of_layer, self.run_expert).view_as(x_BTD)
        if self.experts_of_layer.shared_intermediate_size is not None:
            share_BT1 = self.apply_linear("shared_gate", x_BTD).sigmoid()
            y_BTD = y_BTD + share_BT1 * self.run_mlp(f"{SHARED}.", x_BTD)
        return y_BTD

    def run_expert(self, expert: int, x_ND: Tensor) -> Tensor:
        owner = f"{expert_owner(expert)}."
        return self.run_mlp(owner, self.tap(f"{owner}{EXPERT_INPUT}", x_ND))

    def run_mlp(self, owner: str, x: Tensor) -> Tensor:
        """The layer's MLP, or that of an expert ("experts.5.", "shared.")."""
        up = self.apply_linear(f"{owner}up", x)
        if self.spec.gated:
            up = activate(self.apply_linear(f"{owner}gate", x), self.spec) * up
        else:
            up = activate(up, self.spec)
        return self.apply_linear(f"{owner}down", self.tap(f"{owner}down_input", up))

    def apply_linear(self, role: str, x: Tensor) -> Tensor:
        y: Tensor = self.get_submodule(role)(x)
        return y

    def _place(self, role: str, module: nn.Module) -> None:
        """Where `get_submodule` finds it by its role: "experts.5.gate" is in two others."""
        *owners, own = role.split(".")
        place: nn.Module = self
        for name in owners:
            if not hasattr(place, name):
                place.add_module(name, nn.Module())
            place = place.get_submodule(name)
        place.add_module(own, module)


class Decoder(nn.Module):
    """A decoder-only transformer of any spec."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.tap: Tap = untouched
        self.embedding = nn.Embedding(spec.vocab_size, spec.hidden_size)
        if isinstance(spec.positions, LearnedPositions):
            num_rows = spec.max_positions + spec.positions.offset
            self.position_embedding = nn.Embedding(num_rows, spec.hidden_size)
        self.layers = nn.ModuleList(Layer(spec, index) for index in range(spec.num_layers))
        self.final_norm = make_norm(spec, spec.hidden_size)
        if not spec.tied_embeddings:
            self.output = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> "Decoder":
        """The checkpoint's model with every weight as float32, integers dequantized."""
        with torch.device("meta"):
            decoder = cls(checkpoint.spec)
        decoder.load_state_dict(read_state(checkpoint), assign=True)
        decoder.requires_grad_(False)
        return decoder.eval()

    def forward(self, token_ids_BT: Tensor) -> Tensor:
        """Logits [B, T, V] of each position's next token."""
        num_tokens = token_ids_BT.shape[1]
        x_BTD = self.embed(token_ids_BT)
        table, mask_TT = position_inputs(self.spec, num_tokens)
        for layer in self.layers:
            x_BTD = layer(x_BTD, table, mask_TT)
        return self.predict(x_BTD)

    def embed(self, token_ids_BT: Tensor) -> Tensor:
        """[B, T, D], what enters the first layer."""
        x_BTD = self.embedding(token_ids_BT)
        positions = self.spec.positions
        if isinstance(positions, LearnedPositions):
            steps = torch.arange(token_ids_BT.shape[1])
            x_BTD = x_BTD + self.position_embedding(steps + positions.offset)
        return self.tap("embedding", x_BTD)

    def predict(self, x_BTD: Tensor) -> Tensor:
        """Logits [B, T, V] from what leaves the last layer."""
        output = self.embedding if self.spec.tied_embeddings else self.output
        normed_BTD = self.tap("output_input", self.final_norm(x_BTD))
        return self.tap("logits", functional.linear(normed_BTD, output.weight))


def position_inputs(
    spec: ModelSpec, num_tokens: int
) -> tuple[tuple[Tensor, Tensor] | None, Tensor]:
    """What every layer is told of positions: the rotation table where there is one, and the mask,
    which lets a token see itself and all before it."""
    table = None
    if not isinstance(spec.positions, LearnedPositions):
        dtype = torch.float32 if spec.sinks is None else torch.float64
        table = rotation_table(spec.positions, spec.head_dim, num_tokens, dtype)
    return table, torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()


def table_in_cache(table: tuple[Tensor, Tensor], sinks: AttentionSinks) -> tuple[Tensor, Tensor]:
    """Of the queries that meet the sinks: they are turned as at their place in the cache, which no
    token passes."""
    places_T = torch.arange(len(table[0])).clamp(max=sinks.num_kept_tokens - 1)
    return table[0][places_T], table[1][places_T]


def read_state(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The checkpoint's tensors under the decoder's names."""
    state = read_tables(checkpoint)
    for layer in range(checkpoint.spec.num_layers):
        for name, values in read_layer(checkpoint, layer).items():
            state[f"layers.{layer}.{name}"] = values
    return state


def read_tables(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """What stands before and after the layers: embeddings, the last norm, the output layer."""
    state = {"embedding.weight": checkpoint.embedding().dequantize()}
    positions = checkpoint.position_embedding()
    if positions is not None:
        state["position_embedding.weight"] = positions.to_float32()
    if not checkpoint.spec.tied_embeddings:
        state["output.weight"] = checkpoint.output().dequantize()
    for role in model_vectors(checkpoint.spec):
        state[role] = present(checkpoint.vector(role))
    return _tensors(state)


def read_layer(checkpoint: Checkpoint, layer: int) -> dict[str, Tensor]:
    """One transformer layer's tensors under `Layer`'s names."""
    state = {
        f"{role}.weight": checkpoint.linear(role, layer).dequantize()
        for role in linear_roles(checkpoint.spec, layer)
    }
    for role in checkpoint.spec.router_shapes(layer):
        state[f"{role}.weight"] = checkpoint.router(role, layer).to_float32()
    for role in layer_vectors(checkpoint.spec):
        state[role] = present(checkpoint.vector(role, layer))
    return _tensors(state)


def load_layer(checkpoint: Checkpoint, index: int) -> Layer:
    """One transformer layer in float32; nothing else of the model is read."""
    with torch.device("meta"):
        layer = Layer(checkpoint.spec, index)
    layer.load_state_dict(read_layer(checkpoint, index), assign=True)
    return layer.requires_grad_(False).eval()


def embed_tokens(checkpoint: Checkpoint, ids_BT: npt.NDArray[np.int64]) -> Tensor:
    """What enters the first layer, [B, T, D]; of the table of tokens only these rows are read."""
    table, positions = checkpoint.embedding(), checkpoint.position_embedding()
    x_BTD = table.rows(ids_BT.reshape(-1)).dequantize().reshape(*ids_BT.shape, -1)
    if positions is not None:
        assert isinstance(checkpoint.spec.positions, LearnedPositions)
        first = checkpoint.spec.positions.offset
        x_BTD = x_BTD + positions.to_float32()[first : first + ids_BT.shape[1]]
    return torch.from_numpy(x_BTD)


def _tensors(state: dict[str, npt.NDArray[np.float32]]) -> dict[str, Tensor]:
    """Copies, because a mapped file's arrays are read-only and torch knows no such tensors."""
    return {name: torch.from_numpy(values.copy()) for name, values in state.items()}


def present(values: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
    assert values is not None
    return values
