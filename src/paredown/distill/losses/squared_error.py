"""The squared distance of two scores, as a reranker gives them."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SquaredError:
    """Implements TokenLoss for the scores of an encoder, which stand in the place of logits and of
    the teacher's logarithms."""

    needs_teacher: ClassVar[bool] = True
    needs_positive: ClassVar[bool] = False

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        assert teacher_NV is not None
        return (logits_NV - teacher_NV).square().mean(-1)
