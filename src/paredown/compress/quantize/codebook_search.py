"""AQLM's search for codes (arXiv 2401.06118, section 3.2, phase 1; their beam_search_xtx).

The loss of a row with error e = w - w' is e H e^T, with H from calibration. The search visits a
row's codes one by one, by groups of columns, then codebooks. At each code the B best rows so far
try all K vectors, and the B best results continue. Rows are independent.

Let q = e H[:, c] for the columns c of the group. Replacing a vector p, with scale s, by v adds d =
s (p - v) to the error there:

    loss' = loss + 2 d q^T + d H[c, c] d^T

Shapes: B rows in a beam, O output rows, I input columns, J groups of C columns, M codebooks of K
vectors.
"""

import torch
from torch import Tensor

# The values in one of a beam's tensors; of 2^16 to 2^22 this was the fastest on one core.
_CHUNK_VALUES = 1 << 20


def additive_values(codes_OJM: Tensor, codebooks_MKC: Tensor) -> Tensor:
    """Returns [O, I], the unscaled sums of the vectors that the codes name."""
    values_OJC = codebooks_MKC[0][codes_OJM[:, :, 0]]
    for m in range(1, codebooks_MKC.shape[0]):
        values_OJC += codebooks_MKC[m][codes_OJM[:, :, m]]
    return values_OJC.flatten(1)


def row_losses(errors_OI: Tensor, hessian_II: Tensor) -> Tensor:
    """Returns e H e^T of each row, [..., O]."""
    return (errors_OI @ hessian_II * errors_OI).sum(-1)


def beam_search(
    weight_OI: Tensor,
    hessian_II: Tensor,
    codes_OJM: Tensor,
    codebooks_MKC: Tensor,
    scales_O: Tensor,
    beam_size: int,
) -> Tensor:
    """Returns codes [O, J, M]. Each row's loss is at most that of `codes_OJM`, where the search
    starts."""
    num_rows, num_columns = weight_OI.shape
    widest = beam_size * max(num_columns, codebooks_MKC.shape[1])
    chunk = max(1, _CHUNK_VALUES // widest)
    found = []
    for start in range(0, num_rows, chunk):
        rows = slice(start, start + chunk)
        beam = _Beam(
            weight_OI[rows], hessian_II, codes_OJM[rows], codebooks_MKC, scales_O[rows], beam_size
        )
        found.append(beam.search())
    return torch.cat(found)


class _Beam:
    """The best codes so far of every row, with their errors and losses; `parents` are their
    indices."""

    def __init__(
        self,
        weight_OI: Tensor,
        hessian_II: Tensor,
        codes_OJM: Tensor,
        codebooks_MKC: Tensor,
        scales_O: Tensor,
        size: int,
    ) -> None:
        self.hessian_II, self.codebooks_MKC, self.scales_O = hessian_II, codebooks_MKC, scales_O
        self.weight_OI, self.first_OJM, self.size = weight_OI, codes_OJM, size
        self.codes_BOJM = codes_OJM[None]
        self.errors_BOI = self._errors(codes_OJM)[None]
        self.losses_BO = row_losses(self.errors_BOI, hessian_II)

    def search(self) -> Tensor:
        for group in range(self.first_OJM.shape[1]):
            self._visit(group)
        best_OJM = self.codes_BOJM[0]
        # Losses carried over thousands of steps drift, so the final comparison computes them anew.
        before_O = row_losses(self._errors(self.first_OJM), self.hessian_II)
        after_O = row_losses(self._errors(best_OJM), self.hessian_II)
        return torch.where((after_O < before_O)[:, None, None], best_OJM, self.first_OJM)

    def _errors(self, codes_OJM: Tensor) -> Tensor:
        values_OI = additive_values(codes_OJM, self.codebooks_MKC)
        return self.weight_OI - self.scales_O[:, None] * values_OI

    def _visit(self, group: int) -> None:
        """Tries every vector of every codebook in `group`, for every row of the beam. Values
        outside the group are reordered once, at the end."""
        size = self.codebooks_MKC.shape[2]
        columns = slice(group * size, (group + 1) * size)
        hessian_CC = self.hessian_II[columns, columns]
        scales_O1 = self.scales_O[:, None]
        errors_BOC = self.errors_BOI[:, :, columns]
        q_BOC = self.errors_BOI @ self.hessian_II[:, columns]
        codes_BOM = self.codes_BOJM[:, :, group]
        num_beams, num_rows = self.losses_BO.shape
        origins_BO = torch.arange(num_beams)[:, None].expand(num_beams, num_rows)
        for codebook, vectors_KC in enumerate(self.codebooks_MKC):
            # First removes the old vector from the losses, errors and q.
            old_BOC = scales_O1 * vectors_KC[codes_BOM[:, :, codebook]]
            oldH_BOC = old_BOC @ hessian_CC
            without_BO = self.losses_BO + (old_BOC * (2 * q_BOC + oldH_BOC)).sum(-1)
            errors_BOC, q_BOC = errors_BOC + old_BOC, q_BOC + oldH_BOC
            norms_K = row_losses(vectors_KC, hessian_CC)
            losses_BOK = q_BOC @ vectors_KC.T
            losses_BOK.mul_(-2 * scales_O1).addcmul_(scales_O1.square(), norms_K)
            losses_BOK += without_BO[..., None]
            self.losses_BO, parents_BO, codes_BO = self._best(losses_BOK)
            new_BOC = scales_O1 * vectors_KC[codes_BO]
            errors_BOC = _reordered(errors_BOC, parents_BO) - new_BOC
            q_BOC = _reordered(q_BOC, parents_BO) - new_BOC @ hessian_CC
            codes_BOM = _reordered(codes_BOM, parents_BO)
            codes_BOM[:, :, codebook] = codes_BO
            origins_BO = _reordered(origins_BO, parents_BO)
        self.errors_BOI = _reordered(self.errors_BOI, origins_BO)
        self.errors_BOI[:, :, columns] = errors_BOC
        self.codes_BOJM = _reordered(self.codes_BOJM, origins_BO)
        self.codes_BOJM[:, :, group] = codes_BOM

    def _best(self, losses_BOK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the smallest losses of each row, best first, with their parents and codes, [B,
        O]."""
        codebook_size = losses_BOK.shape[-1]
        flat_ON = losses_BOK.transpose(0, 1).flatten(1)
        best = flat_ON.topk(min(self.size, flat_ON.shape[1]), largest=False, sorted=True)
        chosen_BO = best.indices.T
        return best.values.T, chosen_BO // codebook_size, chosen_BO % codebook_size


def _reordered(beams: Tensor, parents_BO: Tensor) -> Tensor:
    """Takes row o of beam b from row o of beam parents[b, o]."""
    return beams[parents_BO, torch.arange(parents_BO.shape[1])]
