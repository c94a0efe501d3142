"""Sparse vectors: a weight for some tokens of the vocabulary (SPLADE, arXiv 2107.05720)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paredown.engine.encode.encode_job import EncodeJob, Row, TextCounts
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.prompts import PromptChoice
from paredown.engine.encode.read_texts import ReadTexts, Text, Truncate, read_texts
from paredown.retrieve.splade import SparseVector


@dataclass(frozen=True, kw_only=True)
class SparseVectors:
    """`vectors` have the tokens with a weight above 0, in ascending order."""

    vectors: list[SparseVector]
    counts: TextCounts


def sparse_job(
    model: EncoderModel,
    texts: Sequence[Text],
    *,
    prompts: PromptChoice | None = None,
    truncate: Truncate = "refuse",
) -> EncodeJob[SparseVectors]:
    """Returns the job that makes a sparse vector of each text. Raises RequestError."""
    model.check_kind("sparse vectors", "sparse")
    prompt = (prompts or PromptChoice()).before(texts, model.settings)
    read = read_texts(model, texts, prompt=prompt, truncate=truncate)

    def finish(rows: list[Row]) -> SparseVectors:
        return SparseVectors(vectors=[as_sparse(row) for row in rows], counts=read.counts)

    return sparse_rows(read).then(finish)


def sparse_rows(read: ReadTexts) -> EncodeJob[list[Row]]:
    """Returns the job whose rows are [2, num_weights]: tokens and weights. A whole vocabulary of
    weights for each waiting text would take too much memory."""
    return EncodeJob(texts=read.texts, counts=read.counts, finish=list, keep=_without_zeros)


def as_sparse(row: Row) -> SparseVector:
    """Returns the vector of a row of `sparse_rows`."""
    return SparseVector(ids=row[0].astype(np.int64), weights=row[1])


def _without_zeros(number: int, weights: Row) -> Row:
    # Token ids are exact in float32 up to 16 million.
    token_ids = np.flatnonzero(weights > 0)
    return np.stack([token_ids.astype(np.float32), weights[token_ids]])
