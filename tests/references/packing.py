"""GPTQ's and AWQ's tensors one number at a time: Python integers and loops, no code of ours."""

import numpy as np

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def column_of_words(words: np.ndarray) -> int:
    """Words one after the other, the first lowest, as one number."""
    return sum(int(word) % 2**32 << 32 * i for i, word in enumerate(words))


def fields(words: np.ndarray, bits: int) -> list[int]:
    stream = column_of_words(words)
    return [stream >> bits * i & 2**bits - 1 for i in range(len(words) * 32 // bits)]


def gptq_values(tensors: dict[str, np.ndarray], bits: int, version: int) -> np.ndarray:
    """float64 [out, in]: (code - zero point) * scale, each column with the group in g_idx."""
    qweight, qzeros, scales, g_idx = (
        tensors[name] for name in ("qweight", "qzeros", "scales", "g_idx")
    )
    num_rows = qweight.shape[1]
    zeros = [
        [field + 1 if version == 1 else field for field in fields(row, bits)] for row in qzeros
    ]
    values = np.zeros((num_rows, len(g_idx)))
    for row in range(num_rows):
        for column, code in enumerate(fields(qweight[:, row], bits)):
            group = int(g_idx[column])
            values[row, column] = (code - zeros[group][row]) * float(scales[group, row])
    return values


def awq_fields(words: np.ndarray) -> list[int]:
    """A row of words: the eight numbers of each are stored in AWQ_ORDER."""
    found = [0] * (8 * len(words))
    for index, word in enumerate(words):
        for nibble, place in enumerate(AWQ_ORDER):
            found[8 * index + place] = int(word) % 2**32 >> 4 * nibble & 15
    return found


def awq_values(tensors: dict[str, np.ndarray], group_size: int) -> np.ndarray:
    """float64 [out, in]."""
    codes_IO = np.array([awq_fields(row) for row in tensors["qweight"]])
    zeros_GO = np.array([awq_fields(row) for row in tensors["qzeros"]])
    values = np.zeros(codes_IO.T.shape)
    for column, codes in enumerate(codes_IO):
        group = column // group_size
        scales = tensors["scales"][group].astype(np.float64)
        values[:, column] = (codes - zeros_GO[group]) * scales
    return values
