"""Distance of a model's predictions to a reference's, token by token.

KL(reference || model) = sum over the vocabulary of p (ln p - ln q), in nats per token; top-1
agreement is the share of tokens where both find the same token most likely.
"""

import numpy as np
import numpy.typing as npt

from paredown.evaluate.perplexity import Logits, Predictions


def kl_divergences(reference: Predictions, model: Predictions) -> npt.NDArray[np.float64]:
    """KL(reference || model) of each row.

    Summed as p (ln p - ln q) - p + q: equal, because both sum to 1, but no term is negative, so
    that small divergences are not lost among terms that cancel. In float64, where a term keeps its
    first digits down to differences of 1e-7 between logits, and a row at a time, which stays in
    the cache.
    """
    sums_T = np.empty(len(reference.normalizers_T))
    rows = zip(
        reference.logits_TV,
        reference.normalizers_T,
        model.logits_TV,
        model.normalizers_T,
        strict=True,
    )
    for row, (reference_V, reference_normalizer, model_V, model_normalizer) in enumerate(rows):
        terms_V = reference_V - reference_normalizer
        log_q_V = model_V - model_normalizer
        p_V = np.exp(terms_V)
        terms_V -= log_q_V
        terms_V *= p_V
        terms_V -= p_V
        terms_V += np.exp(log_q_V)
        # What rounding leaves of nothing may be below it.
        sums_T[row] = max(0.0, terms_V.sum())
    return sums_T


def num_agreeing(reference_TV: Logits, model_TV: Logits) -> int:
    """Rows whose largest logit stands at the same token; ties go to the lower one."""
    same = reference_TV.argmax(axis=1) == model_TV.argmax(axis=1)
    return int(np.count_nonzero(same))
