"""TokenLoss: the interface of losses that look at one prediction at a time."""

from typing import ClassVar, Protocol

from torch import Tensor


class TokenLoss(Protocol):
    """A frozen dataclass of a loss's options. Shapes: N targets, V tokens of the vocabulary.

    `needs_teacher`   it looks at the teacher's distribution
    `needs_positive`  it divides by the teacher's probabilities, so a teacher that gives some tokens
                      none makes it infinite
    """

    needs_teacher: ClassVar[bool]
    needs_positive: ClassVar[bool]

    def losses(self, logits_NV: Tensor, targets_N: Tensor, teacher_NV: Tensor | None) -> Tensor:
        """Returns the loss of each target, [N], from the student's logits, the text's tokens, and
        the logarithms of the teacher's probabilities where the loss asks for them."""
        ...
