"""EncoderDecoder: an encoder, and the decoder that reads its vectors, in PyTorch.

Shapes: B sequences, S tokens of the encoder's texts, T tokens of the decoder's, V vocabulary.
"""

from torch import Tensor, nn

from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder


class EncoderDecoder(nn.Module):
    """The readable reference of models with cross-attention. Texts of one batch have one length:
    there is no padding."""

    def __init__(self, encoder: Decoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, device: str = "cpu") -> "EncoderDecoder":
        """Returns the checkpoint's model with every weight dequantized to float32."""
        decoder = Decoder.from_checkpoint(checkpoint, device=device)
        encoder = Decoder.from_checkpoint(checkpoint.encoder, device=device)
        encoder.embedding = decoder.embedding
        return cls(encoder, decoder)

    def forward(self, encoder_ids_BS: Tensor, token_ids_BT: Tensor) -> Tensor:
        """Returns the logits [B, T, V] of each next token of the decoder's texts."""
        logits_BTV: Tensor = self.decoder(token_ids_BT, self.encoder.encode(encoder_ids_BS))
        return logits_BTV
