"""Distance of a model's predictions to a reference's, token by token.

KL(reference || model) = sum over the vocabulary of p (ln p - ln q), in nats per token; top-1
agreement is the share of tokens where both find the same token most likely.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.evaluate.quality.perplexity import Predictions
from paredown.evaluate.quality.rows import over_rows


def kl_divergences(reference: Predictions, model: Predictions) -> npt.NDArray[np.float64]:
    """KL(reference || model) of each row.

    Summed as p (ln p - ln q) - p + q: equal, because both sum to 1, but no term is negative, so
    that small divergences are not lost among terms that cancel. In float64, where a term keeps its
    first digits down to differences of 1e-7 between logits.
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
            # What rounding leaves of nothing may be below it.
            sums_T[rows] = np.maximum(0.0, terms.sum(axis=1))

    over_rows(add_up, reference.logits_TV)
    return sums_T


def num_agreeing(reference: Predictions, model: Predictions) -> int:
    """Rows whose largest logit stands at the same token; ties go to the lower one."""
    return int(np.count_nonzero(reference.most_likely == model.most_likely))
