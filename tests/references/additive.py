"""AQLM's pieces one row, one code and one weight at a time, in float64."""

import numpy as np


def decode_row(codes_JM, codebooks_MKC, scale: float) -> np.ndarray:
    parts = []
    for codes_M in codes_JM:
        parts.append(sum(codebooks_MKC[m][code] for m, code in enumerate(codes_M)))
    return scale * np.concatenate(parts)


def row_loss(row_I, codes_JM, codebooks_MKC, scale: float, hessian_II) -> float:
    error_I = row_I - decode_row(codes_JM, codebooks_MKC, scale)
    total = 0.0
    for i, left in enumerate(error_I):
        for j, right in enumerate(error_I):
            total += left * hessian_II[i][j] * right
    return total


def beam_search_row(row_I, hessian_II, codes_JM, codebooks_MKC, scale: float, beam_size: int):
    """Every visit decodes every candidate row and computes its loss from nothing. Returns the
    row's codes and loss; ties go to the first."""
    num_groups, num_codebooks = codes_JM.shape
    beam = [codes_JM.copy()]
    for group in range(num_groups):
        for codebook in range(num_codebooks):
            tried = []
            for codes in beam:
                for code in range(codebooks_MKC.shape[1]):
                    candidate = codes.copy()
                    candidate[group, codebook] = code
                    loss = row_loss(row_I, candidate, codebooks_MKC, scale, hessian_II)
                    tried.append((loss, candidate))
            tried.sort(key=lambda pair: pair[0])
            beam = [candidate for _, candidate in tried[:beam_size]]
    return beam[0], row_loss(row_I, beam[0], codebooks_MKC, scale, hessian_II)


def best_codebooks(weight_OI, hessian_II, codes_OJM, codebooks_MKC, scales_O) -> np.ndarray:
    """The least-squares codebooks for these codes, from the whole design matrix: the row (o, i) of
    it says which entries of the codebooks weight (o, i) is the sum of."""
    num_rows, num_columns = weight_OI.shape
    num_codebooks, codebook_size, size = codebooks_MKC.shape
    design = np.zeros((num_rows, num_columns, num_codebooks, codebook_size, size))
    for o in range(num_rows):
        for i in range(num_columns):
            for m in range(num_codebooks):
                design[o, i, m, codes_OJM[o, i // size, m], i % size] += scales_O[o]
    factor_II = np.linalg.cholesky(hessian_II)
    flat = design.reshape(num_rows, num_columns, -1)
    left = np.concatenate([factor_II.T @ flat[o] for o in range(num_rows)])
    right = np.concatenate([factor_II.T @ weight_OI[o] for o in range(num_rows)])
    return np.linalg.lstsq(left, right, rcond=None)[0].reshape(codebooks_MKC.shape)
