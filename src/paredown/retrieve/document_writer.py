"""DocumentWriter: what each kind of index writes of its documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paredown.retrieve.stored_bytes import StoredBytes

# The documents that a kind of index takes, which that kind checks itself.
Documents = Sequence[Any] | npt.NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class CheckedBatch:
    """Documents that can be written. `write` raises OSError."""

    num_documents: int
    write: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class WrittenDocuments:
    """The fields of an index's header that its documents settle."""

    num_dims: int
    num_vectors: int
    files: Mapping[str, StoredBytes]
    num_lists: int = 0
    num_cls_dims: int = 0


class DocumentWriter(Protocol):
    def check(self, documents: Documents) -> CheckedBatch:
        """Writes nothing. Raises ConfigError for documents that the index cannot have, and
        CapacityError for more than it holds."""
        ...

    def finish(self) -> WrittenDocuments:
        """Raises ConfigError where there is nothing to find, and OSError."""
        ...
