"""A module's tensors taken by suffix, each with its dtype, shape and numbers checked."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError
from paredown.formats.tensor import STORED_DTYPES, StoredDType, StoredTensor
from paredown.spec.weight import ScaleDType

Tensors = Mapping[str, StoredTensor]


def present(tensors: Tensors, suffix: str) -> StoredTensor:
    """Raises CheckpointError when it is missing."""
    if suffix not in tensors:
        raise bad_tensor(suffix, "is missing", ", ".join(sorted(tensors)) or "no tensors")
    return tensors[suffix]


def take(
    tensors: Tensors, suffix: str, dtypes: tuple[StoredDType, ...], shape: tuple[int, ...]
) -> StoredTensor:
    """Raises CheckpointError when it is missing or other than that."""
    tensor = present(tensors, suffix)
    if tensor.dtype not in dtypes or tensor.shape != shape:
        wanted = f"{' or '.join(dtypes)} {list(shape)}"
        seen = f"{tensor.dtype} {list(tensor.shape)}, expected {wanted}"
        raise bad_tensor(suffix, "has the wrong dtype or shape", seen)
    return tensor


def take_words(tensors: Tensors, suffix: str, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Packed codes."""
    return take(tensors, suffix, ("I32",), shape).array.astype(np.int32, copy=False)


def take_scales(
    tensors: Tensors, suffix: str, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.float32], ScaleDType]:
    """The values and their stored dtype. Raises CheckpointError for what is not finite."""
    scale = take(tensors, suffix, tuple(STORED_DTYPES), shape)
    scales = scale.to_float32()
    if not np.isfinite(scales).all():
        raise bad_tensor(suffix, "holds values that are not finite numbers", "NaN or infinity")
    return scales, STORED_DTYPES[scale.dtype]


def bad_tensor(suffix: str, problem: str, seen: object) -> CheckpointError:
    return CheckpointError(
        f"tensor {suffix} of a compressed weight {problem}",
        seen=seen,
        remedy="Use the config.json that belongs to these weights, or download them again.",
    )
