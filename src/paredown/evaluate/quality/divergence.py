"""Measures the distance of a model's predictions from a reference's, token by token.

KL(reference || model) = sum over the vocabulary of p (ln p - ln q), in nats per token; top-1
agreement is the share of tokens where both find the same token most likely.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.evaluate.quality.perplexity import Predictions
from paredown.evaluate.quality.rows import over_rows


def kl_divergences(reference: Predictions, model: Predictions) -> npt.NDArray[np.float64]:
    """Returns KL(reference

    model) of each row.

    The sum is p (ln p - ln q) - p + q. It is equal because p and q both sum to 1, but no term is
    negative, so small divergences do not cancel. Float64 keeps a term's first digits down to logit
    differences of 1e-7.
    """
    sums_T = np.empty(len(reference.normalizers_T))

    def add_up(stretches: Sequence[slice], shape: tuple[int, int]) -> None:
        terms_TV, log_q_TV, p_TV = np.empty((3, *shape))
        for rows in stretches:
            count = rows.stop - rows.start
            terms, log_q, p = terms_TV[:count], log_q_TV[:count], p_TV[:count]
            np.copyto(terms, reference.logits_TV[rows])
            terms -= reference.normalizers_T[rows, None]
            np.copyto(log_q, model.logits_TV[rows])
            log_q -= model.normalizers_T[rows, None]
            np.exp(terms, out=p)
            terms -= log_q
            terms *= p
            terms -= p
            terms += np.exp(log_q, out=log_q)
            # Rounding may leave a tiny negative sum.
            sums_T[rows] = np.maximum(0.0, terms.sum(axis=1))

    over_rows(add_up, reference.logits_TV)
    return sums_T


def num_agreeing(reference: Predictions, model: Predictions) -> int:
    """Counts the rows whose largest logit is at the same token; ties go to the lower token."""
    return int(np.count_nonzero(reference.most_likely == model.most_likely))
