"""Temperature: both distributions of a loss, made flatter (above 1) or steeper (below 1).

A loss of two distributions at the temperature T is multiplied by T^2, which keeps the size of its
gradient when T changes (arXiv 1503.02531, section 2). Shapes: N targets, V tokens.
"""

import torch
from torch import Tensor

from paredown.errors import ConfigError


def check_temperature(temperature: float) -> None:
    """Raises ConfigError unless it is a positive number."""
    if not 0 < temperature < float("inf"):
        raise ConfigError(
            "the temperature of the teacher's distribution is not a positive number",
            seen=temperature,
            remedy="Give a number above 0; 1 is the teacher's own distribution.",
        )


def log_distributions(
    logits_NV: Tensor, teacher_NV: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Returns ln q and ln p at the temperature, from the student's logits and the logarithms of the
    teacher's probabilities."""
    if temperature != 1:
        logits_NV = logits_NV / temperature
        teacher_NV = (teacher_NV / temperature).log_softmax(-1)
    return logits_NV.log_softmax(-1), teacher_NV


def finite(log_p_NV: Tensor) -> Tensor:
    """Returns the logarithms without minus infinity, for products with a probability of 0: these
    are to be 0, and not 0 times infinity."""
    return log_p_NV.clamp(min=torch.finfo(log_p_NV.dtype).min)
