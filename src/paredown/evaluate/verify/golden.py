"""Golden logits: a model's output for fixed tokens, which every load must reproduce.

Where `kernels/arithmetic.py` finds the same arithmetic, all bits agree
(docs/internals/exactness.md) and a hash is compared. Elsewhere the last bits differ, and rounding
to int8 and bf16 amplifies this, so a sample is compared within a tolerance.

Shapes: T tokens, V vocabulary, K sampled tokens of each row.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from paredown.evaluate.quality.perplexity import log_normalizers
from paredown.evaluate.quality.rows import Logits
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.spec.kv import PAGE_SIZE, KVSpec
from paredown.spec.model import ModelSpec

NUM_TOKENS = 64
GOLDEN_KV = KVSpec(num_pages=NUM_TOKENS // PAGE_SIZE)
_NUM_SAMPLED = 8
_DECIMALS = 5
# Between any two of the six x86-64 sets the built-in model differs by at most 0.0087 in 14 formats
# (python -m benchmarks.golden, 2026-11-22, Emerald Rapids with AMX).
TOLERANCE = 0.03


@dataclass(frozen=True, kw_only=True)
class GoldenLogits:
    """`sha256` is that of the float32 logits [T, V]. `sampled_TK` are the most likely tokens after
    each golden one, and `log_probabilities_TK` their log-probabilities."""

    sha256: str
    sampled_TK: list[list[int]]
    log_probabilities_TK: list[list[float]]
    arithmetic: dict[str, str]

    def difference(self, log_p_TK: npt.NDArray[np.float64]) -> float:
        """Returns the root mean square of the sample's deviation from `log_p_TK`, relative to that
        of the sample; infinite for NaN."""
        sample_TK = np.array(self.log_probabilities_TK)
        difference = np.sqrt(np.mean((log_p_TK - sample_TK) ** 2) / np.mean(sample_TK**2))
        return float(difference) if np.isfinite(difference) else np.inf

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> "GoldenLogits":
        """Parses what `as_json` made. Raises KeyError, TypeError or ValueError for anything
        else."""
        sampled_TK = np.array(fields["sampled_TK"])
        log_p_TK = np.array(fields["log_probabilities_TK"], dtype=np.float64)
        sha256, arithmetic = fields["sha256"], fields["arithmetic"]
        if sampled_TK.dtype.kind != "i" or sampled_TK.ndim != 2:
            raise ValueError("sampled_TK is not a table of tokens")
        if log_p_TK.shape != sampled_TK.shape:
            raise ValueError("log_probabilities_TK does not match sampled_TK")
        if not isinstance(arithmetic, dict) or not isinstance(sha256, str):
            raise TypeError("sha256 is not a text, or arithmetic not an object")
        return cls(
            sha256=sha256,
            sampled_TK=sampled_TK.tolist(),
            log_probabilities_TK=log_p_TK.tolist(),
            arithmetic=arithmetic,
        )


def golden_tokens(spec: ModelSpec) -> list[int]:
    """Returns the golden tokens, at most NUM_TOKENS; they are the same for every model of this
    vocabulary."""
    digests = (hashlib.sha256(f"golden token {i}".encode()).digest() for i in range(NUM_TOKENS))
    tokens = [int.from_bytes(digest[:8], "big") % spec.vocab_size for digest in digests]
    return tokens[: spec.max_positions]


def golden_kv(spec: ModelSpec) -> KVSpec:
    """Returns the pages of the golden tokens, and of as many that an encoder reads."""
    return GOLDEN_KV if spec.encoder is None else KVSpec(num_pages=2 * GOLDEN_KV.num_pages)


def run_golden(executor: Executor) -> Logits:
    """Returns [T, V], computed in one step over pages from 0 on. In an encoder-decoder both sides
    read golden tokens."""
    tokens, encoder = golden_tokens(executor.spec), executor.spec.encoder
    pages = list(range(-(-len(tokens) // PAGE_SIZE)))
    part = SequenceSlice(token_ids=tokens, start=0, pages=pages, num_logits=len(tokens))
    if encoder is not None:
        read = golden_tokens(encoder)
        num_pages = -(-len(read) // PAGE_SIZE)
        part.encoder_token_ids, part.num_cross_tokens = read, len(read)
        part.cross_pages = list(range(len(pages), len(pages) + num_pages))
    return executor.step([part])


def hash_output(logits_TV: Logits) -> str:
    return hashlib.sha256(logits_TV.astype("<f4").tobytes()).hexdigest()


def log_probabilities(
    logits_TV: Logits, sampled_TK: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Returns the log-probabilities of the sampled tokens, [T, K]."""
    chosen_TK = np.take_along_axis(logits_TV, sampled_TK, axis=1).astype(np.float64)
    return chosen_TK - log_normalizers(logits_TV)[:, None]


def make_golden(logits_TV: Logits, arithmetic: dict[str, str]) -> GoldenLogits:
    num_sampled = min(_NUM_SAMPLED, logits_TV.shape[1])
    sampled_TK = np.argsort(-logits_TV, axis=1, kind="stable")[:, :num_sampled]
    return GoldenLogits(
        sha256=hash_output(logits_TV),
        sampled_TK=sampled_TK.tolist(),
        log_probabilities_TK=log_probabilities(logits_TV, sampled_TK).round(_DECIMALS).tolist(),
        arithmetic=arithmetic,
    )
