"""Cross-entropy of the text's own tokens, the hard labels: -ln q(target)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """Implements TokenLoss without a teacher."""

    needs_teacher: ClassVar[bool] = False
    needs_positive: ClassVar[bool] = False

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        return functional.cross_entropy(logits_NV, targets_N, reduction="none")
