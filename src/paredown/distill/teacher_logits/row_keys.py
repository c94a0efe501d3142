"""Keys of rows: what a teacher's predictions of a row depend on, as a digest.

Stored rows are found by their content, so neither the order of steps nor parts of a batch matter,
and training and held-out rows can lie in one file. The last token of a row is predicted and not
read, so it is no part of the key.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from paredown.distill.batch import Batch
from paredown.distill.rows import Rows

_KEY_BYTES = 16


def batch_keys(batch: Batch) -> list[bytes]:
    """Returns the key of each row."""
    batch = batch.to("cpu")
    return [
        _key(
            batch.inputs_BT[row].numpy(),
            batch.is_target_BT[row].numpy(),
            None if batch.texts_BT is None else batch.texts_BT[row].numpy(),
        )
        for row in range(len(batch.inputs_BT))
    ]


def distinct_rows(rows: Sequence[Rows]) -> dict[bytes, tuple[int, int]]:
    """Returns the place of each distinct row, as (which of the `rows`, row there), by its key, in
    their order."""
    found: dict[bytes, tuple[int, int]] = {}
    for which, own in enumerate(rows):
        for row in range(own.num_rows):
            (key,) = batch_keys(own.batch(np.array([row])))
            found.setdefault(key, (which, row))
    return found


def keys_digest(keys: Iterable[bytes]) -> str:
    """Returns the SHA-256 of all keys in their order."""
    digest = hashlib.sha256()
    for key in keys:
        digest.update(key)
    return digest.hexdigest()


def _key(
    inputs_T: npt.NDArray[np.int64],
    is_target_T: npt.NDArray[np.bool_],
    texts_T: npt.NDArray[np.int32] | None,
) -> bytes:
    digest = hashlib.blake2b(digest_size=_KEY_BYTES)
    digest.update(np.ascontiguousarray(inputs_T, "<i8").data)
    digest.update(np.ascontiguousarray(is_target_T).data)
    if texts_T is not None:
        digest.update(np.ascontiguousarray(texts_T, "<i4").data)
    return digest.digest()
