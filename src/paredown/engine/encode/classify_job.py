"""Classification: the probability of each label."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from paredown.engine.encode.encode_job import EncodeJob, Row, TextCounts
from paredown.engine.encode.encoder_model import EncoderModel, WrongTaskError
from paredown.engine.encode.read_pairs import Pair, read_pairs
from paredown.engine.encode.read_texts import Text, Truncate, as_texts, read_texts
from paredown.engine.encode.score_activation import sigmoid, softmax
from paredown.engine.sampling.field_rules import MAX_SEEN_CHARS
from paredown.errors import RequestError
from paredown.shown import quoted


@dataclass(frozen=True, kw_only=True)
class Classifications:
    """`probabilities` are [num_texts, num_labels]; `labels` has the most probable of each text, and
    `label_names` those of the columns."""

    labels: list[str]
    probabilities: npt.NDArray[np.float32]
    label_names: tuple[str, ...]
    counts: TextCounts


def classify_job(
    model: EncoderModel,
    texts: Text | Sequence[Text] | Sequence[Pair],
    *,
    truncate: Truncate = "refuse",
) -> EncodeJob[Classifications]:
    """Returns the job that gives each text, or each pair of texts, its labels' probabilities: a
    softmax over the labels, or a sigmoid for each where there is one or where several may hold.
    Raises RequestError."""
    model.check_kind("labels", "classification")
    if model.answers is not None:
        raise WrongTaskError(
            "this model gives no labels",
            seen="a reranker",
            remedy="Ask it for score or rerank.",
        )
    if not isinstance(texts, str) and any(map(is_pair, texts)):
        read = read_pairs(model, _as_pairs(texts), truncate=truncate)
    else:
        read = read_texts(model, as_texts(cast("Sequence[Text]", texts)), truncate=truncate)
    names = model.label_names

    def finish(rows: list[Row]) -> Classifications:
        logits = np.stack(rows)
        is_each = len(names) == 1 or model.settings.activation == "sigmoid"
        found = sigmoid(logits) if is_each else softmax(logits)
        best = [names[int(number)] for number in found.argmax(axis=1)]
        return Classifications(
            labels=best, probabilities=found, label_names=names, counts=read.counts
        )

    return EncodeJob(texts=read.texts, counts=read.counts, finish=finish)


def is_pair(text: object) -> bool:
    """Returns whether this is a pair of texts."""
    return (
        isinstance(text, tuple | list)
        and len(text) == 2
        and all(isinstance(one, str) for one in text)
    )


def _as_pairs(texts: Sequence[object]) -> list[Pair]:
    other = next((one for one in texts if not is_pair(one)), None)
    if other is not None:
        raise RequestError(
            "texts and pairs of texts cannot be mixed",
            seen=quoted(other, MAX_SEEN_CHARS),
            remedy="Give pairs of strings alone, or texts alone.",
        )
    return cast("list[Pair]", list(texts))
