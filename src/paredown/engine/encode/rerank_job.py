"""Reranking: the documents by their score for a query."""

from collections.abc import Sequence
from dataclasses import dataclass

from paredown.engine.encode.encode_job import EncodeJob, TextCounts
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.read_texts import Truncate
from paredown.engine.encode.score_job import Scores, score_job
from paredown.engine.sampling.field_rules import MAX_SEEN_CHARS, ParameterError
from paredown.shown import quoted


@dataclass(frozen=True, kw_only=True)
class RankedDocument:
    """`index` is the document's number among those that were given."""

    index: int
    score: float
    document: str


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """`results` have the best document first; equal scores stand in the order of the documents."""

    results: list[RankedDocument]
    documents: TextCounts
    total_tokens: int


def rerank_job(
    model: EncoderModel,
    query: str,
    documents: Sequence[str],
    *,
    top_n: int | None = None,
    truncate: Truncate = "end",
) -> EncodeJob[Ranking]:
    """Returns the job that sorts the documents; `top_n` None keeps all. Raises RequestError."""
    if top_n is not None and (type(top_n) is not int or top_n < 1):
        raise ParameterError(
            "top_n", seen=quoted(top_n, MAX_SEEN_CHARS), remedy="Use an integer from 1 on."
        )
    listed = list(documents)

    def ranked(found: Scores) -> Ranking:
        scores = found.scores.tolist()
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        return Ranking(
            results=[
                RankedDocument(index=index, score=scores[index], document=listed[index])
                for index in order[:top_n]
            ],
            documents=found.documents,
            total_tokens=found.total_tokens,
        )

    return score_job(model, [query], listed, truncate=truncate).then(ranked)
