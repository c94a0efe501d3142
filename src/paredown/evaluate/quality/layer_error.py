"""Measures how far each transformer layer's output is from the original's, on the PyTorch decoder.

For the output y of the original's layer and y_c of the compressed one, over all tokens:
||y_c - y|| / ||y||, Frobenius norms. Weights are dequantized to float32 and inputs are not rounded,
so this is what the weights alone cost. Two layers are in memory at a time. Where whole layers
were removed, a layer is compared with the one that it was (models/kept_layers.py).

Shapes: B windows, T tokens, D hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from paredown.errors import CheckpointError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.read import embed_tokens, load_final_norm, load_layer
from paredown.models.kept_layers import layer_partners
from paredown.progress import OnCount


@dataclass(frozen=True, kw_only=True)
class LayerError:
    """The errors of one layer. `layer` is its number in the original.

    `own`          the compressed layer gets the original layer's input
    `accumulated`  it gets the output of the compressed layers before it
    """

    layer: int
    own: float
    accumulated: float


def layers_correspond(original: Checkpoint, compressed: Checkpoint) -> bool:
    """Returns whether each layer of the second is one of the first, which `layer_errors` asks for.
    Those of a student with sizes of its own are none."""
    if original.spec.hidden_size != compressed.spec.hidden_size:
        return False
    try:
        _partners(original, compressed)
    except CheckpointError:
        return False
    return True


def layer_errors(
    original: Checkpoint,
    compressed: Checkpoint,
    token_ids_T: Sequence[int],
    on_progress: OnCount | None = None,
    encoder_ids_S: Sequence[int] = (),
) -> list[LayerError]:
    """Returns the errors on one window of tokens, which the context of both models must hold. In an
    encoder-decoder its encoder reads `encoder_ids_S`; the layers of the decoder are numbered on
    from those of the encoder. Raises CheckpointError for models whose layers do not correspond."""
    report = on_progress or (lambda done, total: None)
    if original.spec.encoder is None:
        return _stack_errors(original, compressed, token_ids_T, report)[0]
    encoders = original.encoder, compressed.encoder
    num_read = encoders[0].spec.num_layers
    total = num_read + original.spec.num_layers
    errors, outputs = _stack_errors(*encoders, encoder_ids_S, lambda done, _: report(done, total))
    with torch.inference_mode():
        vectors = [
            load_final_norm(one)(x_BSD) for one, x_BSD in zip(encoders, outputs, strict=True)
        ]
    own, _ = _stack_errors(
        original, compressed, token_ids_T, lambda done, _: report(num_read + done, total), vectors
    )
    return [*errors, *(replace(one, layer=num_read + one.layer) for one in own)]


def _stack_errors(
    original: Checkpoint,
    compressed: Checkpoint,
    token_ids_T: Sequence[int],
    on_progress: OnCount,
    vectors: Sequence[Tensor | None] = (None, None),
) -> tuple[list[LayerError], tuple[Tensor, Tensor]]:
    """Returns the errors of one stack of layers, and the last outputs of both models. `vectors` are
    what cross-attention reads in each."""
    partners = _partners(original, compressed)
    # The original's layers after the last one that was kept are nobody's partner.
    num_layers = partners[-1] + 1
    own_numbers = {partner: own for own, partner in enumerate(partners)}
    errors, (read, read_c) = [], vectors
    with torch.inference_mode():
        ids_BT = np.array([token_ids_T])
        x_BTD, x_c_BTD = embed_tokens(original, ids_BT), embed_tokens(compressed, ids_BT)
        for number in range(num_layers):
            layer = load_layer(original, number)
            positions = layer.positions(len(token_ids_T))
            y_BTD = layer(x_BTD, *positions, read)
            if number in own_numbers:
                compressed_layer = load_layer(compressed, own_numbers[number])
                own = relative_error(compressed_layer(x_BTD, *positions, read), y_BTD)
                x_c_BTD = compressed_layer(x_c_BTD, *positions, read_c)
                accumulated = relative_error(x_c_BTD, y_BTD)
                errors.append(LayerError(layer=number, own=own, accumulated=accumulated))
            x_BTD = y_BTD
            on_progress(number + 1, num_layers)
    return errors, (x_BTD, x_c_BTD)


def _partners(original: Checkpoint, compressed: Checkpoint) -> list[int]:
    return layer_partners(
        original.kept_layers,
        original.spec.num_layers,
        compressed.kept_layers,
        compressed.spec.num_layers,
    )


def relative_error(y_c: Tensor, y: Tensor) -> float:
    """Returns

    y_c - y

    /

    y

    , summed in float64; 0 where both are zero.
    """
    difference = torch.linalg.vector_norm(y_c.double() - y.double())
    return float(difference / torch.linalg.vector_norm(y.double())) if difference != 0 else 0.0
