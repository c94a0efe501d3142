"""Golden vectors: what an encoder makes of fixed texts, which every load must reproduce
(evaluate/verify/golden.py).

Shapes: N vectors of D numbers, K sampled numbers of each.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from paredown.evaluate.verify.golden import NUM_TOKENS, golden_tokens, hash_output
from paredown.executors.encoder_protocol import EncoderExecutor, TokenText
from paredown.spec.model import ModelSpec

Vectors = npt.NDArray[np.float32]
_LENGTHS = (1, 2, 5, 9, 16, 24, 40, NUM_TOKENS)
_MOST_SAMPLED = 16
_DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class GoldenVectors:
    """`sha256` is that of the float32 vectors [N, D]; `sample_NK` are numbers of each, evenly
    spaced."""

    sha256: str
    sample_NK: list[list[float]]
    arithmetic: dict[str, str]

    def difference(self, vectors_ND: Vectors) -> float:
        """Returns the root mean square of the sample's deviation from `vectors_ND`, relative to
        that of the sample; infinite for NaN and other shapes."""
        expected_NK, found_NK = np.array(self.sample_NK), _sample(vectors_ND)
        if expected_NK.shape != found_NK.shape:
            return np.inf
        difference = np.sqrt(np.mean((found_NK - expected_NK) ** 2) / np.mean(expected_NK**2))
        return float(difference) if np.isfinite(difference) else np.inf

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> "GoldenVectors":
        """Parses what `as_json` made. Raises KeyError, TypeError or ValueError for anything
        else."""
        sample_NK = np.array(fields["sample_NK"], dtype=np.float64)
        sha256, arithmetic = fields["sha256"], fields["arithmetic"]
        if sample_NK.ndim != 2 or not sample_NK.size:
            raise ValueError("sample_NK is not a table of numbers")
        if not isinstance(arithmetic, dict) or not isinstance(sha256, str):
            raise TypeError("sha256 is not a text, or arithmetic not an object")
        return cls(sha256=sha256, sample_NK=sample_NK.tolist(), arithmetic=arithmetic)


def golden_texts(spec: ModelSpec) -> list[TokenText]:
    """Returns the golden texts, of lengths that the model can hold. They are the same for every
    model of this vocabulary and these lengths."""
    tokens = golden_tokens(spec)
    lengths = dict.fromkeys(min(length, len(tokens)) for length in _LENGTHS)
    return [TokenText(token_ids=tokens[:length]) for length in lengths]


def run_golden_texts(encoder: EncoderExecutor) -> Vectors:
    """Returns [N, D]: a vector for each text, or for each token where the head does not pool."""
    return encoder.encode(golden_texts(encoder.spec))


def make_golden_vectors(vectors_ND: Vectors, arithmetic: dict[str, str]) -> GoldenVectors:
    sample_NK = [[float(f"{one:.{_DIGITS}g}") for one in row] for row in _sample(vectors_ND)]
    return GoldenVectors(sha256=hash_output(vectors_ND), sample_NK=sample_NK, arithmetic=arithmetic)


def _sample(vectors_ND: Vectors) -> npt.NDArray[np.float64]:
    size = vectors_ND.shape[1]
    places_K = np.arange(min(_MOST_SAMPLED, size)) * size // min(_MOST_SAMPLED, size)
    found: npt.NDArray[np.float64] = vectors_ND[:, places_K].astype(np.float64)
    return found
