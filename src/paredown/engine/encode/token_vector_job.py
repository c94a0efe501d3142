"""Token vectors: one vector for each token of a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.engine.encode.encode_job import EncodeJob, Row, TextCounts
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.late_texts import LateTexts, read_late_texts
from paredown.engine.encode.prompts import PromptChoice
from paredown.engine.encode.read_texts import Text, Truncate, read_texts


@dataclass(frozen=True, kw_only=True)
class TokenVectors:
    """`vectors` has [num_tokens, size] for each text, and `token_ids` the tokens of these vectors.
    `counts` also counts tokens that have none."""

    vectors: list[npt.NDArray[np.float32]]
    token_ids: list[list[int]]
    counts: TextCounts


def token_vector_job(
    model: EncoderModel, texts: Sequence[Text], *, is_query: bool, truncate: Truncate = "refuse"
) -> EncodeJob[TokenVectors]:
    """Returns the job that gives the vectors of all tokens: as late interaction compares them, or
    those behind the last layer for a model with another head. Raises RequestError."""
    if model.kind == "token_vectors":
        late = read_late_texts(model, texts, is_query=is_query, truncate=truncate)
        return late_rows(late).then(
            lambda rows: TokenVectors(vectors=rows, token_ids=late.token_ids, counts=late.counts)
        )
    model.check_kind("vectors of tokens", "embedding")
    prompt = PromptChoice(input_type="query" if is_query else "document")
    is_text = isinstance(texts[0], str)
    read = read_texts(
        model,
        texts,
        prompt=prompt.text(model.settings) if is_text else "",
        truncate=truncate,
    )
    token_ids = [list(text.token_ids) for text in read.texts]

    def finish(rows: list[Row]) -> TokenVectors:
        return TokenVectors(vectors=rows, token_ids=token_ids, counts=read.counts)

    return EncodeJob(texts=read.texts, counts=read.counts, finish=finish, output="tokens")


def late_rows(late: LateTexts) -> EncodeJob[list[Row]]:
    """Returns the job whose rows are the vectors that late interaction compares."""
    return EncodeJob(texts=late.texts, counts=late.counts, finish=late.counting)
