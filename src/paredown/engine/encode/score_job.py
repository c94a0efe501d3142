"""Scores of documents for a query, whatever the model is: the similarity of two vectors, MaxSim
over token vectors (arXiv 2004.12832, equation 3), the product of sparse vectors, or the label of a
cross-encoder that reads both together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paredown.engine.encode.answer_score import answer_rows, answer_scores
from paredown.engine.encode.encode_job import EncodeJob, Row, TextCounts, joined
from paredown.engine.encode.encoder_model import EncoderModel, WrongTaskError
from paredown.engine.encode.late_texts import read_late_texts
from paredown.engine.encode.prompts import PromptChoice
from paredown.engine.encode.read_pairs import read_pairs
from paredown.engine.encode.read_texts import Truncate, read_texts
from paredown.engine.encode.score_activation import ACTIVATIONS
from paredown.engine.encode.similarity import SIMILARITIES
from paredown.engine.encode.sparse_job import as_sparse, sparse_rows
from paredown.engine.encode.token_vector_job import late_rows
from paredown.engine.encode.vectors import shorten, vector_rows
from paredown.engine.sampling.field_rules import MAX_SEEN_CHARS
from paredown.errors import RequestError
from paredown.retrieve.colbert import maxsim
from paredown.retrieve.splade import splade
from paredown.shown import quoted

Floats = npt.NDArray[np.float32]
# Returns the scores of all documents for one query.
Compare = Callable[[Row, list[Row]], Floats]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """`scores` are [num_documents]. A cross-encoder reads a query and a document as one text, which
    `documents` then counts."""

    scores: Floats
    documents: TextCounts
    queries: TextCounts = field(default_factory=lambda: TextCounts(num_tokens=()))

    @property
    def total_tokens(self) -> int:
        return self.queries.total_tokens + self.documents.total_tokens


def score_job(
    model: EncoderModel,
    queries: Sequence[str],
    documents: Sequence[str],
    *,
    truncate: Truncate = "refuse",
) -> EncodeJob[Scores]:
    """Returns the job that scores all documents for one query, or each document for the query in
    its place. Raises RequestError."""
    _check_texts(queries, documents)
    if model.kind == "classification":
        return _cross_encoder(model, queries, documents, truncate)
    read, compare = _READERS[model.kind]
    of_queries = read(model, queries, True, truncate)
    of_documents = read(model, documents, False, truncate)

    def finish(query_rows: list[Row], rows: list[Row]) -> Scores:
        if len(query_rows) == 1:
            scores = compare(model, query_rows[0], rows)
        else:
            pairs = zip(query_rows, rows, strict=True)
            scores = np.concatenate([compare(model, query, [row]) for query, row in pairs])
        return Scores(scores=scores, documents=of_documents.counts, queries=of_queries.counts)

    return joined(of_queries, of_documents, finish)


def _vectors(
    model: EncoderModel, texts: Sequence[str], is_query: bool, truncate: Truncate
) -> EncodeJob[list[Row]]:
    prompt = _prompt(model, is_query)
    return vector_rows(model, read_texts(model, texts, prompt=prompt, truncate=truncate), prompt)


def _compare_vectors(model: EncoderModel, query: Row, rows: list[Row]) -> Floats:
    size = model.settings.cut_size
    vectors_ND = shorten(np.stack([query, *rows]), size)
    return SIMILARITIES[model.settings.similarity](vectors_ND[0], vectors_ND[1:])


def _token_vectors(
    model: EncoderModel, texts: Sequence[str], is_query: bool, truncate: Truncate
) -> EncodeJob[list[Row]]:
    return late_rows(read_late_texts(model, texts, is_query=is_query, truncate=truncate))


def _compare_tokens(model: EncoderModel, query: Row, rows: list[Row]) -> Floats:
    return maxsim(query, rows)


def _sparse_vectors(
    model: EncoderModel, texts: Sequence[str], is_query: bool, truncate: Truncate
) -> EncodeJob[list[Row]]:
    prompt = _prompt(model, is_query)
    return sparse_rows(read_texts(model, texts, prompt=prompt, truncate=truncate))


def _compare_sparse(model: EncoderModel, query: Row, rows: list[Row]) -> Floats:
    return splade(as_sparse(query), [as_sparse(row) for row in rows])


_READERS = {
    "embedding": (_vectors, _compare_vectors),
    "token_vectors": (_token_vectors, _compare_tokens),
    "sparse": (_sparse_vectors, _compare_sparse),
}


def _prompt(model: EncoderModel, is_query: bool) -> str:
    return PromptChoice(input_type="query" if is_query else "document").text(model.settings)


def _cross_encoder(
    model: EncoderModel, queries: Sequence[str], documents: Sequence[str], truncate: Truncate
) -> EncodeJob[Scores]:
    if len(queries) == 1:
        queries = [queries[0]] * len(documents)
    pairs = list(zip(queries, documents, strict=True))
    activation = ACTIVATIONS[model.settings.activation]
    if model.answers is not None:
        read = answer_rows(model, pairs, truncate=truncate)
    else:
        if model.size != 1:
            raise WrongTaskError(
                "this classifier has no single score",
                seen=f"{model.size} labels",
                remedy="Ask it for classify, which takes pairs too.",
            )
        read = read_pairs(model, pairs, truncate=truncate)

    def finish(rows: list[Row]) -> Scores:
        logits = np.stack(rows)
        if model.answers is not None:
            logits = answer_scores(model.answers, logits)
        return Scores(scores=activation(logits)[:, 0], documents=read.counts)

    return EncodeJob(texts=read.texts, counts=read.counts, finish=finish)


def _check_texts(queries: Sequence[str], documents: Sequence[str]) -> None:
    for texts in (queries, documents):
        wrong = [one for one in texts if not isinstance(one, str)]
        if wrong or not texts:
            raise RequestError(
                "queries and documents are strings, at least one of each",
                seen=quoted(wrong[0], MAX_SEEN_CHARS) if wrong else "an empty list",
                remedy="Send strings.",
            )
    if len(queries) not in (1, len(documents)):
        raise RequestError(
            "there must be one query, or one for each document",
            seen=f"{len(queries)} queries, {len(documents)} documents",
            remedy="Send as many of both, or a single query.",
        )
