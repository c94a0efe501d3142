"""Takes a module's tensors by suffix and checks dtype, shape and numbers of each."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError
from paredown.formats.tensor import STORED_DTYPES, StoredDType, StoredTensor
from paredown.spec.weight import ScaleDType

Tensors = Mapping[str, StoredTensor]


def present(tensors: Tensors, suffix: str) -> StoredTensor:
    """Returns a tensor. Raises CheckpointError if it is missing."""
    if suffix not in tensors:
        raise bad_tensor(suffix, "is missing", ", ".join(sorted(tensors)) or "no tensors")
    return tensors[suffix]


def take(
    tensors: Tensors, suffix: str, dtypes: tuple[StoredDType, ...], shape: tuple[int, ...]
) -> StoredTensor:
    """Returns a tensor. Raises CheckpointError if it is missing or has another dtype or shape."""
    tensor = present(tensors, suffix)
    if tensor.dtype not in dtypes or tensor.shape != shape:
        wanted = f"{' or '.join(dtypes)} {list(shape)}"
        seen = f"{tensor.dtype} {list(tensor.shape)}, expected {wanted}"
        raise bad_tensor(suffix, "has the wrong dtype or shape", seen)
    return tensor


def take_words(tensors: Tensors, suffix: str, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Returns packed codes."""
    return take(tensors, suffix, ("I32",), shape).array.astype(np.int32, copy=False)


def take_scales(
    tensors: Tensors, suffix: str, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.float32], ScaleDType]:
    """Returns the scales and their stored dtype. Raises CheckpointError for scales that are not
    finite."""
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
