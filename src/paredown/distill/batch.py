"""Batch: rows of tokens, and which of their predictions count. Shapes: B rows, T tokens, N
targets."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.spec.device import Device


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`targets_BT` holds the token after each of `inputs_BT`; it counts where `is_target_BT` is
    true. `texts_BT` numbers the text of each token of a row; with None a row is one text. Encoders
    predict no tokens: the first token of each text counts, with the text's label, and `types_BT`
    are the segments of pairs (encoder_rows.py).
    `advantages_BT`, where a model has chosen the targets, says how much better each was than what
    else it could have chosen, and `weights_BT` how much it counts (on_policy/policy_loss.py)."""

    inputs_BT: Tensor
    targets_BT: Tensor
    is_target_BT: Tensor
    texts_BT: Tensor | None = None
    types_BT: Tensor | None = None
    advantages_BT: Tensor | None = None
    weights_BT: Tensor | None = None

    @property
    def num_targets(self) -> int:
        return int(self.is_target_BT.sum())

    @property
    def num_tokens(self) -> int:
        return self.inputs_BT.numel()

    @property
    def device_type(self) -> str:
        return self.inputs_BT.device.type

    def to(self, device: Device) -> "Batch":
        """Returns the batch on that device."""

        def moved(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.to(device)

        return Batch(
            inputs_BT=self.inputs_BT.to(device),
            targets_BT=self.targets_BT.to(device),
            is_target_BT=self.is_target_BT.to(device),
            texts_BT=moved(self.texts_BT),
            types_BT=moved(self.types_BT),
            advantages_BT=moved(self.advantages_BT),
            weights_BT=moved(self.weights_BT),
        )

    def places(self) -> Tensor:
        """Returns the indices [N] of the targets in the flattened batch."""
        return self.is_target_BT.flatten().nonzero(as_tuple=True)[0]

    def targets(self) -> Tensor:
        """Returns the targets that count, [N]."""
        return self.targets_BT[self.is_target_BT]

    def split(self, num_rows: int) -> list["Batch"]:
        """Splits the batch into parts of at most `num_rows` rows."""
        parts = torch.split(torch.arange(len(self.inputs_BT)), num_rows)
        return [
            Batch(
                inputs_BT=self.inputs_BT[rows],
                targets_BT=self.targets_BT[rows],
                is_target_BT=self.is_target_BT[rows],
                texts_BT=None if self.texts_BT is None else self.texts_BT[rows],
                types_BT=None if self.types_BT is None else self.types_BT[rows],
                advantages_BT=None if self.advantages_BT is None else self.advantages_BT[rows],
                weights_BT=None if self.weights_BT is None else self.weights_BT[rows],
            )
            for rows in parts
        ]
