"""Runs texts on an executor and gives each its own row."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

import numpy as np

from paredown.engine.encode.encode_job import EncodeJob, Row
from paredown.errors import RequestError
from paredown.executors.encoder_protocol import EncoderExecutor, EncoderOutput, TokenText
from paredown.spec.model import ModelSpec

T = TypeVar("T")


class ModelFailedError(RequestError):
    """The model cannot encode a text: its vector holds NaN or infinity, or the executor fails."""


def has_token_rows(spec: ModelSpec, output: EncoderOutput) -> bool:
    """Returns whether the model gives a vector for each token rather than for each text."""
    return output == "tokens" or spec.head is None or not spec.head.pooling


def encode_rows(
    executor: EncoderExecutor, texts: Sequence[TokenText], output: EncoderOutput
) -> list[Row]:
    """Returns each text's row. Raises what the executor raises."""
    found = executor.encode(texts, output)
    if not has_token_rows(executor.spec, output):
        return list(found)
    ends = list(accumulate(len(text.token_ids) for text in texts))
    return np.split(found, ends[:-1])


def check_finite(row: Row) -> None:
    """Raises ModelFailedError for NaN and infinity."""
    if not np.isfinite(row).all():
        raise ModelFailedError(
            "the model's numbers for this text are not finite",
            seen=f"{np.count_nonzero(~np.isfinite(row))} of {row.size}",
            remedy="Use another checkpoint: this one is damaged, or its numbers pass the largest "
            "float.",
        )


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yields the numbers of the texts, the longest first, in batches of at most `max_tokens`
    tokens; a longer text is a batch by itself."""
    batch, num_tokens = list[int](), 0
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if batch and num_tokens + lengths[number] > max_tokens:
            yield batch
            batch, num_tokens = [], 0
        batch.append(number)
        num_tokens += lengths[number]
    if batch:
        yield batch


def run_job(executor: EncoderExecutor, job: EncodeJob[T], max_tokens: int) -> list[Row]:
    """Returns the rows of a job that has the executor to itself. Raises ModelFailedError."""
    rows: dict[int, Row] = {}
    lengths = [len(text.token_ids) for text in job.texts]
    for batch in batches_by_length(lengths, max_tokens):
        texts = [job.texts[number] for number in batch]
        for number, row in zip(batch, encode_rows(executor, texts, job.output), strict=True):
            check_finite(row)
            rows[number] = job.keep(number, row)
    return [rows[number] for number in range(len(job.texts))]
