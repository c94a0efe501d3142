"""AsyncEncoder: shares one Encoder between the tasks of an event loop and batches their texts."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from paredown.engine.encode.classify_job import Classifications, classify_job
from paredown.engine.encode.embed_job import Embeddings, embed_job
from paredown.engine.encode.encode_job import EncodeJob
from paredown.engine.encode.encoder_worker import EncoderWorker
from paredown.engine.encode.prompts import PromptChoice
from paredown.engine.encode.read_pairs import Pair
from paredown.engine.encode.read_texts import Text, Truncate, as_texts
from paredown.engine.encode.rerank_job import Ranking, rerank_job
from paredown.engine.encode.score_job import Scores, score_job
from paredown.engine.encode.sparse_job import SparseVectors, sparse_job
from paredown.engine.encode.token_vector_job import TokenVectors, token_vector_job
from paredown.engine.encoder import Encoder, as_strings
from paredown.engine.lent_worker import start_lent, stop_lent
from paredown.errors import RequestError
from paredown.models.text.tokenizer import LONG_TEXT_CHARS

T = TypeVar("T")


class AsyncEncoder:
    """Holds `encoder` for the duration of an `async with`; a separate thread computes. The methods
    are those of Encoder, with the same bits.

    Texts beyond `BatchConfig.max_waiting_texts` and `max_waiting_tokens` are refused with
    QueueFullError. A request that fails hurts no other. If the thread has died, every caller gets
    UnavailableError with the reason in its `__cause__`. A cancelled request leaves the rest of its
    texts out.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._worker: EncoderWorker | None = None

    async def __aenter__(self) -> "AsyncEncoder":
        """Raises RequestError while the encoder has another AsyncEncoder."""
        self._encoder.lend()
        worker = EncoderWorker(lambda: self._encoder.executor, self._encoder.config)
        self._worker = await start_lent(worker, self._encoder.take_back)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops after the current batch; unfinished requests get UnavailableError."""
        worker, self._worker = self._worker, None
        assert worker is not None
        await stop_lent(worker, self._encoder.take_back)

    async def embed(
        self,
        texts: Text | Sequence[Text],
        *,
        input_type: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        truncate: Truncate = "refuse",
    ) -> Embeddings:
        """Returns a vector for each text, as `Encoder.embed` does."""
        prompts = PromptChoice(prompt=prompt, prompt_name=prompt_name, input_type=input_type)
        return await self._run(
            embed_job, as_texts(texts), prompts=prompts, dimensions=dimensions, truncate=truncate
        )

    async def sparse_vectors(
        self,
        texts: Text | Sequence[Text],
        *,
        input_type: str | None = None,
        truncate: Truncate = "refuse",
    ) -> SparseVectors:
        """Returns each text's weights for tokens, as `Encoder.sparse_vectors` does."""
        prompts = PromptChoice(input_type=input_type)
        return await self._run(sparse_job, as_texts(texts), prompts=prompts, truncate=truncate)

    async def token_vectors(
        self,
        texts: Text | Sequence[Text],
        *,
        is_query: bool = False,
        truncate: Truncate = "refuse",
    ) -> TokenVectors:
        """Returns a vector for each token, as `Encoder.token_vectors` does."""
        return await self._run(
            token_vector_job, as_texts(texts), is_query=is_query, truncate=truncate
        )

    async def classify(
        self, texts: Text | Sequence[Text] | Sequence[Pair], *, truncate: Truncate = "refuse"
    ) -> Classifications:
        """Returns the labels of texts or pairs, as `Encoder.classify` does."""
        return await self._run(classify_job, texts, truncate=truncate)

    async def score(
        self,
        query: str | Sequence[str],
        texts: str | Sequence[str],
        *,
        truncate: Truncate = "refuse",
    ) -> Scores:
        """Returns a score for each text, as `Encoder.score` does."""
        return await self._run(score_job, as_strings(query), as_strings(texts), truncate=truncate)

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        truncate: Truncate = "end",
    ) -> Ranking:
        """Returns the documents in the order of their scores, as `Encoder.rerank` does."""
        return await self._run(rerank_job, query, documents, top_n=top_n, truncate=truncate)

    async def _run(self, make: Callable[..., EncodeJob[T]], *texts: Any, **options: Any) -> T:
        """Makes the job, long texts in another thread so that the event loop goes on, and runs
        it."""
        if self._worker is None:
            raise RequestError(
                "the AsyncEncoder is not open", seen="no `async with`", remedy="Ask inside of one."
            )
        if _num_chars(texts) < LONG_TEXT_CHARS:
            job = make(self._encoder.model, *texts, **options)
        else:
            job = await asyncio.to_thread(make, self._encoder.model, *texts, **options)
        return await self._worker.run(job)


def _num_chars(texts: Any) -> int:
    """Counts characters, and token ids as such."""
    if isinstance(texts, str):
        return len(texts)
    return sum(map(_num_chars, texts)) if isinstance(texts, list | tuple) else 1
