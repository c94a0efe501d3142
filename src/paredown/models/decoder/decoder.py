"""The PyTorch decoder: the readable reference that every other executor is compared with. It runs
encoders as well.

Shapes: B sequences, T tokens, D hidden size, V vocabulary. Everything is float32 and nothing is
cached. Every value that passes between two operations passes a named point (points.py).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.attention import Positions, capped, position_inputs
from paredown.models.decoder.head import HeadModule
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.norms import make_norm
from paredown.models.decoder.points import Tap, untouched
from paredown.models.decoder.read import read_state
from paredown.spec.attention import Attention
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.model import ModelSpec


class Decoder(nn.Module):
    """A transformer of any spec. `sinks` lets it run on texts of any length."""

    def __init__(self, spec: ModelSpec, sinks: AttentionSinks | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.sinks = sinks
        self.tap: Tap = untouched
        self.embedding = nn.Embedding(spec.vocab_size, spec.hidden_size)
        if spec.position_shape is not None:
            self.position_embedding = nn.Embedding(*spec.position_shape)
        if spec.embedding.num_token_types:
            self.token_type_embedding = nn.Embedding(
                spec.embedding.num_token_types, spec.hidden_size
            )
        if spec.embedding.norm is not None:
            self.embedding_norm = make_norm(spec.embedding.norm, spec.hidden_size)
        self.layers = nn.ModuleList(Layer(spec, index, sinks) for index in range(spec.num_layers))
        self.final_norm = make_norm(spec.final_norm, spec.hidden_size)
        self.share_relative_biases()
        if spec.head is not None:
            self.head = HeadModule(spec.head, spec.hidden_size)
        if spec.has_own_output:
            has_bias = spec.present_output.has_bias
            self.output = nn.Linear(spec.hidden_size, spec.vocab_size, bias=has_bias)

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, sinks: AttentionSinks | None = None, device: str = "cpu"
    ) -> "Decoder":
        """Returns the checkpoint's model with every weight dequantized to float32. For another
        device it is built layer by layer, so that host memory never holds more than one layer."""
        with torch.device("meta"):
            decoder = cls(checkpoint.spec, sinks)
        decoder.load_state_dict(read_state(checkpoint, device), assign=True)
        decoder.share_relative_biases()
        decoder.requires_grad_(False)
        return decoder.eval()

    def share_relative_biases(self) -> None:
        """Gives all layers the first one's table of relative positions."""
        if self.spec.relative_shape is not None:
            for layer in self.layers:
                layer.relative_biases = self.layers[0].relative_biases

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def sum_dtype(self) -> torch.dtype:
        """The precision of the sum of all layers: that of the norms, whatever the tables are stored
        in."""
        return next(
            values.dtype for name, values in self.named_parameters() if name.endswith("norm.weight")
        )

    def forward(self, token_ids_BT: Tensor, encoded_BSD: Tensor | None = None) -> Tensor:
        """Returns the logits [B, T, V] of each position's next token. `encoded_BSD` are the vectors
        of S tokens that cross-attention reads."""
        return self.predict(self.run_layers(self.embed(token_ids_BT), encoded_BSD=encoded_BSD))

    def encode(
        self, token_ids_BT: Tensor, type_ids_BT: Tensor | None = None, num_unseen: int = 0
    ) -> Tensor:
        """Returns the vector [B, T, D] of each token, after the final norm. Types are 0 unless
        given. The last `num_unseen` tokens of each text are seen by none."""
        x_BTD = self.run_layers(self.embed(token_ids_BT, type_ids_BT=type_ids_BT), num_unseen)
        return self.tap("output_input", self.final_norm(x_BTD))

    def apply_head(self, x_BTD: Tensor) -> Tensor:
        """Returns what the head makes of the vectors of whole texts, [B, T, D]: a vector for each
        text, or one for each token (models/decoder/head.py)."""
        y: Tensor = self.head(x_BTD, self.embedding.weight)
        return y

    def run_layers(
        self, x_BTD: Tensor, num_unseen: int = 0, encoded_BSD: Tensor | None = None
    ) -> Tensor:
        """Returns the output [B, T, D] of the last layer, from that of `embed`."""
        num_tokens = x_BTD.shape[1]
        is_seen_T = torch.arange(num_tokens) < num_tokens - num_unseen
        positions = self.positions(num_tokens)
        for layer, (table, mask_TT) in zip(self.layers, positions, strict=True):
            x_BTD = layer(x_BTD, table, mask_TT & is_seen_T, encoded_BSD)
        return x_BTD

    def positions(self, num_tokens: int) -> list[Positions]:
        """Returns each layer's positions for the first `num_tokens` tokens; layers that attend
        alike share them."""
        known: dict[Attention, Positions] = {}
        for layer in self.spec.layer_counts:
            known[layer.attention] = position_inputs(layer.attention, num_tokens, self.sinks)
        return [known[layer.attention] for layer in self.spec.layers]

    def embed(
        self,
        token_ids_BT: Tensor,
        positions_T: Tensor | None = None,
        type_ids_BT: Tensor | None = None,
    ) -> Tensor:
        """Returns the input of the first layer, [B, T, D]. Positions count from 0, and types are 0,
        unless given."""
        x_BTD = self.embedding(token_ids_BT)
        embedding = self.spec.embedding
        if embedding.multiplier != 1:
            x_BTD = x_BTD * embedding.multiplier
        if embedding.positions is not None:
            if positions_T is None:
                positions_T = torch.arange(token_ids_BT.shape[1])
            x_BTD = x_BTD + self.position_embedding(positions_T + embedding.positions.offset)
        if embedding.num_token_types:
            types_BT = torch.zeros_like(token_ids_BT) if type_ids_BT is None else type_ids_BT
            x_BTD = x_BTD + self.token_type_embedding(types_BT)
        x_BTD = self.tap("embedding", x_BTD)
        return x_BTD if embedding.norm is None else self.embedding_norm(x_BTD)

    def predict(self, x_BTD: Tensor, output_VD: Tensor | None = None) -> Tensor:
        """Returns logits [B, T, V] from the output of the last layer. `output_VD` replaces the
        output layer's weight."""
        weight_VD, bias_V = self.output_layer()
        normed_BTD = self.tap("output_input", self.final_norm(x_BTD))
        logits_BTV = functional.linear(
            normed_BTD, weight_VD if output_VD is None else output_VD, bias_V
        )
        return self.tap("logits", self.scaled_logits(logits_BTV))

    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        """Returns the output layer's weight [V, D], which may be the embedding's, and its bias."""
        output = self.spec.present_output
        weight_VD = (self.embedding if output.is_tied else self.output).weight
        return weight_VD, self.output.bias if output.has_bias else None

    def scaled_logits(self, products_V: Tensor) -> Tensor:
        """Returns logits [..., V] from what the output layer computes."""
        output = self.spec.present_output
        if output.multiplier != 1:
            products_V = products_V * output.multiplier
        return products_V if output.soft_cap is None else capped(products_V, output.soft_cap)
