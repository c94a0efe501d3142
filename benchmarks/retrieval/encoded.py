"""Texts as a sentence encoder gives them: a vector for the text, and one for each token."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown import Encoder

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """`texts` [N, D] has the vectors of texts; `tokens` and `ids` have those of each text's tokens,
    markers among them; `markers` are the ids of these."""

    texts: Floats
    tokens: list[Floats]
    ids: list[Ints]
    markers: frozenset[int]


def encode(model: Path, texts: list[str], num_threads: int) -> Encoded:
    """Runs the encoder; texts that are too long are cut."""
    encoder = Encoder(model, num_threads=num_threads)
    of_tokens = encoder.token_vectors(texts, truncate="end")
    return Encoded(
        texts=encoder.embed(texts, truncate="end").vectors,
        tokens=of_tokens.vectors,
        ids=[np.array(one, np.int64) for one in of_tokens.token_ids],
        # What an empty text consists of.
        markers=frozenset(encoder.token_vectors([""]).token_ids[0]),
    )
