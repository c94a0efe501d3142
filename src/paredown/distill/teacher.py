"""Teacher: the interface of what a student learns from, and the original model as one.

Shapes: N targets of a batch, D hidden size, V tokens of the vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from paredown.distill.arithmetic import Arithmetic, computing
from paredown.distill.batch import Batch
from paredown.distill.chunked_logits import chunk_logits
from paredown.distill.forward import fuse_attention, run_layers
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.spec.device import Device

# Returns the logarithms of the teacher's probabilities, [n, V], for a slice of a batch's targets.
LogProbabilities = Callable[[slice], Tensor]


class Teacher(Protocol):
    """Predicts a batch, wherever its predictions come from."""

    def predict(self, batch: Batch) -> LogProbabilities:
        """Returns the predictions at the batch's targets, in their order. It is called by several
        threads, each with another batch."""
        ...


@dataclass(frozen=True, kw_only=True)
class DecoderTeacher:
    """Implements Teacher by running a model beside the student."""

    decoder: Decoder
    arithmetic: Arithmetic

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, arithmetic: Arithmetic, device: Device = "cpu"
    ) -> "DecoderTeacher":
        """Loads the model; its matrices are rounded once to the dtype they are multiplied in."""
        decoder = Decoder.from_checkpoint(checkpoint, device=device)
        fuse_attention(decoder)
        if arithmetic == "bf16":
            # The sum of an encoder's tables passes a norm first, in full precision.
            kinds = (nn.Linear, nn.Embedding) if checkpoint.spec.generates else (nn.Linear,)
            for module in decoder.modules():
                if isinstance(module, kinds):
                    module.weight.data = module.weight.data.to(torch.bfloat16)
        return cls(decoder=decoder, arithmetic=arithmetic)

    def predict(self, batch: Batch) -> LogProbabilities:
        with torch.no_grad(), computing(self.arithmetic, batch.device_type):
            x_BTD = run_layers(self.decoder, batch)
        return self.predict_from(x_BTD, batch)

    def predict_from(self, x_BTD: Tensor, batch: Batch) -> LogProbabilities:
        """Returns the predictions from the output of the last layer."""
        with torch.no_grad(), computing(self.arithmetic, batch.device_type):
            normed_ND = self.decoder.final_norm(x_BTD.flatten(0, 1)[batch.places()])
        logits = chunk_logits(self.decoder, normed_ND, self.arithmetic)

        def log_probabilities(rows: slice) -> Tensor:
            with torch.no_grad():
                return logits(rows).log_softmax(-1)

        return log_probabilities
