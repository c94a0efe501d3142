"""Vectors as they are given: any floats, checked once."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.errors import ConfigError
from paredown.kernels.vector_search import MAX_DIMS

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
# Products of two numbers stay finite in float32, however many are summed.
MAX_MAGNITUDE = 1e15


def as_vectors(values: object, what: str) -> Floats:
    """Returns `values` as a float32 matrix; one vector becomes a matrix of one row.

    Raises ConfigError, which names `what`, for anything but floats or integers in one or two
    dimensions, for numbers that are not finite or beyond 1e15, and for more than 65,536
    dimensions.
    """
    try:
        found = np.asarray(values)
    except ValueError as error:
        raise _odd(what, "rows of unlike lengths") from error
    if found.dtype.kind not in "fiu" or found.ndim not in (1, 2):
        raise _odd(what, f"{found.dtype} of shape {found.shape}")
    with np.errstate(over="ignore"):  # told below
        vectors_ND = np.ascontiguousarray(np.atleast_2d(found), np.float32)
    if not 1 <= vectors_ND.shape[1] <= MAX_DIMS:
        raise ConfigError(
            f"{what} have no dimensions, or too many",
            seen=f"shape {found.shape}",
            remedy=f"Give vectors of 1 to {MAX_DIMS:,} dimensions.",
        )
    # A NaN is not at most anything.
    if not (np.abs(vectors_ND) <= MAX_MAGNITUDE).all():
        row = int(np.argmin((np.abs(vectors_ND) <= MAX_MAGNITUDE).all(axis=1)))
        raise ConfigError(
            f"{what} hold numbers that cannot be compared",
            seen=f"row {row}: {vectors_ND[row]}",
            remedy=f"Give finite numbers up to {MAX_MAGNITUDE:g}.",
        )
    return vectors_ND


def as_token_vectors(
    sequences: Sequence[npt.ArrayLike] | npt.NDArray[np.generic], what: str
) -> tuple[Floats, Ints]:
    """Returns the vectors of all sequences [T, D] and where each begins [len(sequences) + 1].

    Raises ConfigError for a sequence without tokens, for unlike dimensions, and for what
    `as_vectors` refuses.
    """
    parts = [as_vectors(one, what) for one in sequences]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(one) for one in parts], out=offsets[1:])
    for number, one in enumerate(parts):
        if not len(one):
            raise ConfigError(
                f"{what} must have tokens",
                seen=f"number {number} of shape {one.shape}",
                remedy="Leave out what has none.",
            )
        check_dims(one, parts[0].shape[1], f"{what}, number {number}")
    if not parts:
        return np.empty((0, 0), np.float32), offsets
    return np.concatenate(parts), offsets


def real_tokens(vectors_NTD: npt.ArrayLike, mask_NT: npt.ArrayLike) -> list[Floats]:
    """Returns the vectors that a mask keeps, one array for each sequence: padding never takes part
    in a score. Raises ConfigError for a mask of another shape."""
    vectors, mask = np.asarray(vectors_NTD, np.float32), np.asarray(mask_NT, bool)
    if vectors.ndim != 3 or mask.shape != vectors.shape[:2]:
        raise ConfigError(
            "a mask has a place for each token",
            seen=f"vectors {vectors.shape}, mask {mask.shape}",
            remedy="Give vectors [sequences, tokens, dimensions] and a mask [sequences, tokens].",
        )
    return [one[kept] for one, kept in zip(vectors, mask, strict=True)]


def check_dims(vectors_ND: Floats, num_dims: int, what: str) -> None:
    """Raises ConfigError unless the vectors have `num_dims` dimensions."""
    if vectors_ND.shape[1] != num_dims:
        raise ConfigError(
            f"{what}: another number of dimensions",
            seen=f"{vectors_ND.shape[1]}, not {num_dims}",
            remedy="Make all vectors with one model, cut to one length.",
        )


def unit_length(vectors_ND: Floats) -> Floats:
    """Returns the vectors divided by their lengths; zeros stay zeros."""
    lengths_N1 = np.sqrt(np.square(vectors_ND, dtype=np.float64).sum(axis=1, keepdims=True))
    divided = vectors_ND / np.where(lengths_N1 == 0, 1, lengths_N1)
    return divided.astype(np.float32)


def _odd(what: str, seen: str) -> ConfigError:
    return ConfigError(
        f"{what} are no vectors", seen=seen, remedy="Give numbers, as [vectors, dimensions]."
    )
