"""EncoderExecutor: the interface through which texts become vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.model import ModelSpec

# What `encode` returns: what the model's head makes, or the vectors of all tokens after the final
# norm, without the head.
EncoderOutput = Literal["head", "tokens"]


@dataclass(frozen=True, kw_only=True)
class TokenText:
    """A text as tokens, with the special tokens that belong to it. `type_ids` are the segments of a
    pair; None means that all are 0. The last `num_unseen` tokens see the others, but no token sees
    them: a query of ColBERT is filled up with such tokens."""

    token_ids: Sequence[int]
    type_ids: Sequence[int] | None = None
    num_unseen: int = 0


class EncoderExecutor(Protocol):
    """Turns whole texts into vectors. Nothing is kept between calls. Not thread-safe: one caller at
    a time."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def threads(self) -> ThreadPlan: ...

    @property
    def weight_bytes(self) -> int:
        """The bytes of the weights that every text passes."""
        ...

    @property
    def arithmetic(self) -> dict[str, str]:
        """Everything besides weights and tokens that the last bits of vectors depend on."""
        ...

    @property
    def known_content(self) -> str | None:
        """The digest of the checkpoint's files (models/fingerprints.py), if loading had to compute
        it."""
        ...

    def encode(
        self, texts: Sequence[TokenText], output: EncoderOutput = "head"
    ) -> npt.NDArray[np.float32]:
        """Returns [num_texts, size], in order.

        Without pooling, and for "tokens", the vectors of all tokens lie one after the other: [sum
        of the texts' lengths, size]. A text's vectors have the same bits alone and in any batch.
        Raises ValueError for an empty text, and for tokens, types or lengths beyond the model;
        nothing is computed then.
        """
        ...
