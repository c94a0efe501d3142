"""How far the vectors of an encoder are from those of the model it was made from.

    cosine            of a text's two vectors, in the mean and at the least; of a token's where the
                      model gives a vector for each
    rank agreement    Spearman's correlation of the similarities of all pairs of texts: whether a
                      search would order them alike
    label agreement   the share of texts that both give the same label

Shapes: N texts or tokens, D numbers of each, P pairs.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.evaluate.metrics.spearman import spearman

Vectors = npt.NDArray[np.float32]
# The pairs of so many texts are compared; more would tell the same.
_MOST_PAIRED = 1024


@dataclass(frozen=True, kw_only=True)
class VectorAgreement:
    """`rank_agreement` is None for one text and for labels, `label_agreement` None where there are
    none."""

    cosine_mean: float
    cosine_least: float
    rank_agreement: float | None
    label_agreement: float | None


def compare_vectors(
    found_ND: Vectors, expected_ND: Vectors, *, are_labels: bool = False
) -> VectorAgreement:
    """Compares the vectors of texts, or with `are_labels` their scores for each label."""
    assert found_ND.shape == expected_ND.shape, (found_ND.shape, expected_ND.shape)
    cosines_N = cosines(found_ND, expected_ND)
    same = None
    if are_labels and found_ND.shape[1] > 1:
        same = float(np.mean(found_ND.argmax(1) == expected_ND.argmax(1)))
    return VectorAgreement(
        cosine_mean=float(cosines_N.mean()),
        cosine_least=float(cosines_N.min()),
        rank_agreement=_rank_agreement(found_ND, expected_ND, are_labels=are_labels),
        label_agreement=same,
    )


def cosines(one_ND: Vectors, other_ND: Vectors) -> npt.NDArray[np.float64]:
    """Returns the cosine of each pair of rows, [N], summed in float64. Two zero vectors are alike;
    one alone has nothing in common with any other."""
    both_zero_N = ~one_ND.any(1) & ~other_ND.any(1)
    cosines_N = (unit(one_ND) * unit(other_ND)).sum(1)
    found: npt.NDArray[np.float64] = np.where(both_zero_N, 1.0, cosines_N)
    return found


def unit(vectors_ND: Vectors) -> npt.NDArray[np.float64]:
    """Returns the vectors with length 1, in float64; a zero vector stays."""
    wide_ND = vectors_ND.astype(np.float64)
    lengths_N1 = np.linalg.norm(wide_ND, axis=1, keepdims=True)
    found: npt.NDArray[np.float64] = wide_ND / np.where(lengths_N1 > 0, lengths_N1, 1.0)
    return found


def similarities(vectors_ND: Vectors) -> npt.NDArray[np.float64]:
    """Returns the cosines of all pairs of different rows, [P]."""
    unit_ND = unit(vectors_ND[:_MOST_PAIRED])
    found: npt.NDArray[np.float64] = (unit_ND @ unit_ND.T)[np.triu_indices(len(unit_ND), 1)]
    return found


def _rank_agreement(found_ND: Vectors, expected_ND: Vectors, *, are_labels: bool) -> float | None:
    if are_labels and found_ND.shape[1] > 1:
        return None
    # A single number, as a reranker gives it, orders the texts itself.
    found_P, expected_P = (
        one_ND[:, 0].astype(np.float64) if are_labels else similarities(one_ND)
        for one_ND in (found_ND, expected_ND)
    )
    if len(found_P) < 2:
        return None
    found = spearman(found_P, expected_P)
    return None if np.isnan(found) else found
