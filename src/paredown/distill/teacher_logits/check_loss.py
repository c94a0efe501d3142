"""Which losses can be learned from what is kept of a teacher's distributions.

    loss                            samples-N  top-K  top-K-renormalized  whole
    forward KL, soft labels         yes, T 1   yes    yes                 yes
    reverse KL, JSD                 no         yes    no                  yes
    top share of the tokens, SLIM   no         K >= share of V    no      yes

Samples are right on average only where a loss is linear in p: no temperature, no product with ln p
that has a gradient. Losses that divide by p need every token to be possible. What looks at the
teacher's top tokens needs at least these.
"""

import math

from paredown.distill.losses.slim import SLIM
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.losses.top_share_kl import TopShareKL
from paredown.distill.teacher_logits.keep import Keep
from paredown.errors import ConfigError


def check_loss(keep: Keep, loss: TokenLoss, vocab_size: int) -> None:
    """Raises ConfigError where the loss would learn something else from what is kept than from the
    teacher itself, beyond the bias that `keep` is known for."""
    assert loss.needs_teacher
    keep.check(vocab_size)
    temperature = getattr(loss, "temperature", 1.0)
    if keep.is_linear and temperature != 1:
        raise ConfigError(
            "samples of a distribution say nothing of it at another temperature",
            seen=f"{keep.name} and temperature {temperature:g}",
            remedy="Give temperature 1, or keep top-K or whole distributions.",
        )
    if loss.needs_positive and not keep.is_positive:
        raise ConfigError(
            f"{type(loss).__name__} needs a probability of every token",
            seen=f"{keep.name}, which knows none of most",
            remedy="Keep top-K or whole distributions, or learn with soft-label or kl.",
        )
    if isinstance(loss, SLIM | TopShareKL):
        needed = math.ceil(loss.share * vocab_size)
        if keep.num_exact(vocab_size) < needed:
            raise ConfigError(
                f"{type(loss).__name__} looks at more of the teacher's top tokens than are kept",
                seen=f"{keep.name}; {loss.share:g} of {vocab_size:,} tokens are {needed:,}",
                remedy=f"Keep top-{needed} or whole distributions, or look at a smaller share "
                "(--top-share).",
            )
