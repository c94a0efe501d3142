"""The forward pass of training: from tokens to the input of the output layer.

Shapes: B rows, T tokens, D hidden size.
"""

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from paredown.distill.batch import Batch
from paredown.models.decoder.attention import FusedPositions, position_inputs
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.packed import packed_positions, text_positions
from paredown.spec.attention import Attention


def fuse_attention(decoder: Decoder) -> None:
    """Lets each layer compute attention in a single call where it can."""
    for layer in decoder.layers:
        assert isinstance(layer, Layer)
        layer.is_fused = True


def run_layers(decoder: Decoder, batch: Batch, *, recomputes: bool = False) -> Tensor:
    """Returns the output of the last layer, [B, T, D]. With `recomputes` only the inputs of the
    layers are kept for the gradients, and each layer runs a second time then (gradient
    checkpointing, arXiv 1604.06174)."""
    x_BTD = embed_batch(decoder, batch)
    known: dict[Attention, FusedPositions] = {}
    for layer in decoder.layers:
        assert isinstance(layer, Layer)
        attention = layer.spec.attention
        if attention not in known:
            known[attention] = layer_positions(layer, batch)
        table, mask_TT = known[attention]
        if recomputes:
            x_BTD = checkpoint(
                layer, x_BTD, table, mask_TT, use_reentrant=False, preserve_rng_state=False
            )
        else:
            x_BTD = layer(x_BTD, table, mask_TT)
    return x_BTD


def embed_batch(decoder: Decoder, batch: Batch) -> Tensor:
    """Returns the input of the first layer, [B, T, D]."""
    texts_BT = batch.texts_BT
    positions_BT = None if texts_BT is None else text_positions(texts_BT)
    x_BTD = decoder.embed(batch.inputs_BT, positions_BT, batch.types_BT)
    return x_BTD.to(decoder.sum_dtype)


def layer_positions(layer: Layer, batch: Batch) -> FusedPositions:
    attention, num_tokens = layer.spec.attention, batch.inputs_BT.shape[1]
    if batch.texts_BT is not None:
        return packed_positions(attention, batch.texts_BT)
    table, mask_TT = position_inputs(attention, num_tokens)
    sees_all = attention.window is None or attention.window >= num_tokens
    is_plain = layer.is_fused and attention.soft_cap is None and attention.is_causal and sees_all
    return table, None if is_plain else mask_TT
