"""Outputs of an encoder for each text of a batch, with gradients.

Shapes: B rows, T tokens, D hidden size, N texts, R vectors of E numbers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.distill.batch import Batch
from paredown.models.decoder.decoder import Decoder


@dataclass(frozen=True, kw_only=True)
class TextOutputs:
    """`values_RE` has a vector for each text, or one for each token where nothing is pooled.
    `weights_R` are their weights in a mean over each text, which add up to 1."""

    values_RE: Tensor
    weights_R: Tensor


@dataclass(frozen=True, kw_only=True)
class TextSpan:
    """A text of a batch: tokens `start` to `stop` of its row."""

    row: int
    start: int
    stop: int

    @property
    def num_tokens(self) -> int:
        return self.stop - self.start


def text_spans(batch: Batch) -> list[TextSpan]:
    """Returns the texts of a batch of whole texts (encoder_rows.py), in order."""
    assert batch.texts_BT is not None
    found = []
    for row, start in batch.is_target_BT.nonzero().tolist():
        texts_T = batch.texts_BT[row]
        num_tokens = int((texts_T == texts_T[start]).sum())
        found.append(TextSpan(row=row, start=start, stop=start + num_tokens))
    return found


def text_outputs(decoder: Decoder, x_BTD: Tensor, batch: Batch) -> TextOutputs:
    """Returns what the head makes of the outputs of the last layer; without a head these are the
    vectors of all tokens."""
    normed_BTD: Tensor = decoder.final_norm(x_BTD)
    normed_BTD = normed_BTD.float()
    values, weights = [], []
    for span in text_spans(batch):
        value = normed_BTD[span.row, span.start : span.stop][None]
        if decoder.spec.head is not None:
            value = decoder.apply_head(value)
        rows_RE = value.reshape(-1, value.shape[-1])
        values.append(rows_RE)
        weights.append(torch.full((len(rows_RE),), 1 / len(rows_RE), device=x_BTD.device))
    return TextOutputs(values_RE=torch.cat(values), weights_R=torch.cat(weights))


def every_token(batch: Batch) -> Batch:
    """Returns the batch with every token of its texts as a target."""
    is_target_BT = torch.zeros_like(batch.is_target_BT)
    for span in text_spans(batch):
        is_target_BT[span.row, span.start : span.stop] = True
    return Batch(
        inputs_BT=batch.inputs_BT,
        targets_BT=batch.targets_BT,
        is_target_BT=is_target_BT,
        texts_BT=batch.texts_BT,
        types_BT=batch.types_BT,
    )


def token_weights(batch: Batch) -> Tensor:
    """Returns the weight of each token of the texts in a mean over its text, in the order of
    `every_token`."""
    shares = [torch.full((span.num_tokens,), 1 / span.num_tokens) for span in text_spans(batch)]
    return torch.cat(shares).to(batch.inputs_BT.device)
