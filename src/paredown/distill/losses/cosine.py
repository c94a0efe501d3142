"""The distance of two vectors' directions: 1 - cos. Lengths do not count, since texts are compared
by cosine (arXiv 1908.10084)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Implements TokenLoss for the vectors of an encoder, which stand in the place of logits and of
    the teacher's logarithms."""

    needs_teacher: ClassVar[bool] = True
    needs_positive: ClassVar[bool] = False

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        assert teacher_NV is not None
        return 1 - functional.cosine_similarity(logits_NV, teacher_NV, dim=-1)
