"""Embeddings: one vector for each text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.engine.encode.encode_job import EncodeJob, Row, TextCounts
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.prompts import PromptChoice
from paredown.engine.encode.read_texts import Text, Truncate, read_texts
from paredown.engine.encode.vectors import check_dimensions, shorten, vector_rows


@dataclass(frozen=True, kw_only=True)
class Embeddings:
    """`vectors` are [num_texts, size], in the order of the texts."""

    vectors: npt.NDArray[np.float32]
    counts: TextCounts


def embed_job(
    model: EncoderModel,
    texts: Sequence[Text],
    *,
    prompts: PromptChoice | None = None,
    dimensions: int | None = None,
    truncate: Truncate = "refuse",
) -> EncodeJob[Embeddings]:
    """Returns the job that makes a vector of each text. Raises RequestError."""
    model.check_kind("vectors of texts", "embedding")
    check_dimensions(model, dimensions)
    size = model.settings.cut_size if dimensions is None else dimensions
    prompt = (prompts or PromptChoice()).before(texts, model.settings)
    read = read_texts(model, texts, prompt=prompt, truncate=truncate)

    def finish(rows: list[Row]) -> Embeddings:
        return Embeddings(vectors=shorten(np.stack(rows), size), counts=read.counts)

    return vector_rows(model, read, prompt).then(finish)
