"""Rejection sampling of drafts (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv
2302.01318): tokens drawn from q become tokens distributed exactly as p.

    accept the draft x with probability   min(1, p(x) / q(x))
    else draw from the residual           max(0, p - q) / sum(max(0, p - q))

A draft that follows from the text is a point mass q: it is accepted with probability p(x), and the
residual is p without x.

The engine keeps a stronger promise by default: a draft is accepted when it equals the target's own
draw at its position (docs/speculation.md), and then this file is not needed.
V: vocabulary.
"""

import numpy as np
import numpy.typing as npt

from paredown.engine.sampling.sampler import draw_token
from paredown.engine.sampling.sampler import residual as positive_part
from paredown.kernels.native_sampler import uniform

FloatsV = npt.NDArray[np.float64]

# Streams of a position's random numbers; 0 is that of the token's own draw (docs/sampling.md).
_ACCEPTANCE, _RESIDUAL = 1, 2


def acceptance_probability(p_V: FloatsV, q_V: FloatsV | None, draft: int) -> float:
    """min(1, p / q) of a draft drawn from q; None is a point mass on the draft."""
    p, q = float(p_V[draft]), 1.0 if q_V is None else float(q_V[draft])
    return 1.0 if p >= q else p / q


def residual(p_V: FloatsV, q_V: FloatsV | None, draft: int) -> FloatsV:
    """What a token is drawn from after `draft` was rejected; it sums to 1."""
    left_V = p_V.copy() if q_V is None else positive_part(p_V, q_V)
    # Zero already but where q is a point mass: a rejected draft has q > p.
    left_V[draft] = 0.0
    if not left_V.any():  # p and q differ by rounding alone, and a rejection is as improbable
        left_V = p_V
    rest_V: FloatsV = left_V / left_V.sum()
    return rest_V


def rejection_sample(
    p_V: FloatsV, q_V: FloatsV | None, draft: int, *, seed: int, position: int
) -> int:
    """The token at `position`; the draft was accepted exactly when it is the draft."""
    accepted = acceptance_probability(p_V, q_V, draft)
    if uniform(seed % 2**64, position, _ACCEPTANCE) < accepted:
        return draft
    return draw_token(residual(p_V, q_V, draft), seed=seed, position=position, stream=_RESIDUAL)
