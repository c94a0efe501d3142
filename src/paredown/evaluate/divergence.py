"""Distance of a model's predictions to a reference's, token by token.

KL(reference || model) = sum over the vocabulary of p (ln p - ln q), in nats per token; top-1
agreement is the share of tokens where both find the same token most likely.
"""

import numpy as np
import numpy.typing as npt

from paredown.evaluate.perplexity import Logits, log_normalizers


def kl_divergences(reference_TV: Logits, model_TV: Logits) -> npt.NDArray[np.float64]:
    """KL(reference || model) of each row.

    Summed as p (e^-d - 1 + d) with d = ln p - ln q: equal, because p e^-d = q and both sum to 1,
    but no term is negative, so that small divergences are not lost among terms that cancel.
    """
    log_p = reference_TV - log_normalizers(reference_TV)[:, None].astype(np.float32)
    difference = log_p - (model_TV - log_normalizers(model_TV)[:, None].astype(np.float32))
    p = np.exp(log_p)
    with np.errstate(over="ignore", invalid="ignore"):
        terms = p * (np.expm1(-difference) + difference)
    # Where e^-d overflows, the same from q itself.
    huge = ~np.isfinite(terms)
    if huge.any():
        q = np.exp(log_p - difference)
        terms[huge] = (q - p + p * difference)[huge]
    sums: npt.NDArray[np.float64] = terms.sum(axis=1, dtype=np.float64)
    return sums


def num_agreeing(reference_TV: Logits, model_TV: Logits) -> int:
    """Rows whose largest logit stands at the same token; ties go to the lower one."""
    same = reference_TV.argmax(axis=1) == model_TV.argmax(axis=1)
    return int(np.count_nonzero(same))
