"""Encodes the texts that an encoder-decoder reads, and keeps what cross-attention has of them.

Each text is computed alone, so that nothing beside it can change its bits. Shapes: S tokens of the
text, D hidden size, K key-value heads, C columns of a head.
"""

import torch

from paredown.executors.protocol import SequenceSlice
from paredown.executors.torch.pages import Pages
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.spec.device import Device
from paredown.spec.kv import PAGE_SIZE


class EncoderTexts:
    """Encodes texts with `encoder`, and writes the keys and values that cross-attention of
    `decoder` makes of them to its pages."""

    def __init__(self, encoder: Decoder, decoder: Decoder, pages: Pages, device: Device) -> None:
        self._encoder = encoder
        self._decoder = decoder
        self._pages = pages
        self._device = torch.device(device)

    def write(self, part: SequenceSlice) -> None:
        """Writes the keys and values of the slice's text, if the slice brings one."""
        if not part.encoder_token_ids:
            return
        # New tensors are made on the model's device.
        with self._device:
            encoded_1SD = self._encoder.encode(torch.tensor([list(part.encoder_token_ids)]))
            positions_S = torch.arange(encoded_1SD.shape[1])
            pages_S = torch.tensor(list(part.cross_pages))[positions_S // PAGE_SIZE]
            for index, layer in enumerate(self._decoder.layers):
                assert isinstance(layer, Layer)
                kv_2KSC = torch.cat(layer.cross_heads(encoded_1SD))
                self._pages.write(index, pages_S, positions_S % PAGE_SIZE, kv_2KSC)
