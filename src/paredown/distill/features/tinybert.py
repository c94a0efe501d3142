"""TinyBERT, for decoders too (arXiv 1909.10351): attention, hidden states and the embedding.

    mean over the layers of attention_scores.py + mean over the states of hidden_states.py

Its fourth loss, the prediction's, stands beside it (prediction.py). The paper trains on features
first and on predictions then; here both are lowered at once, since predictions are what a student
is for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from paredown.distill.batch import Batch
from paredown.distill.features.attention_scores import Heads, attention_losses
from paredown.distill.features.hidden_states import hidden_losses
from paredown.distill.features.layer_pair import LayerPair, at_targets

PROJECTION = "features.hidden"


@dataclass(frozen=True, kw_only=True)
class TinyBERT:
    """Implements PairLoss. `projection_ED` leads from the student's states to the teacher's."""

    num_layers: int
    projection_ED: Tensor

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        return {PROJECTION: self.projection_ED}

    def of_embedding(self, own_BTD: Tensor, taught_BTD: Tensor, batch: Batch) -> Tensor:
        own_ND, taught_NE = at_targets(own_BTD, batch), at_targets(taught_BTD, batch)
        return hidden_losses(own_ND, taught_NE, self.projection_ED) / (self.num_layers + 1)

    def of_layer(self, pair: LayerPair, batch: Batch) -> Tensor:
        hidden_N = self.of_embedding(pair.own.output_BTD, pair.state_BTD, batch)
        attention_N = attention_losses(Heads.of(pair.own), Heads.of(pair.taught), batch)
        return hidden_N + attention_N / self.num_layers
