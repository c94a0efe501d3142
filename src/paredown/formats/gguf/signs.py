"""The signs of eight columns as bits, lowest first; 1 means minus."""

import numpy as np
import numpy.typing as npt


def signs(octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """Returns -1 and 1, [..., 8]."""
    places = np.arange(8, dtype=np.uint8)
    return np.int8(1) - ((octets[..., None] >> places & 1) << 1).astype(np.int8)


def even_signs(words: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
    """Returns the signs of the seven lowest bits, and an eighth sign that makes the number of
    minuses even."""
    seven = (words & 127).astype(np.uint8)
    odd = seven ^ seven >> np.uint8(4)
    odd = odd ^ odd >> np.uint8(2)
    odd = (odd ^ odd >> np.uint8(1)) & np.uint8(1)
    all_eight: npt.NDArray[np.uint8] = np.asarray(seven | odd << np.uint8(7), np.uint8)
    return signs(all_eight)
