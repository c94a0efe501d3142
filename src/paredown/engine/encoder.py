"""Encoder: vectors, scores and labels of texts from one loaded model, from Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from paredown.engine.build_encoder import BuiltEncoder, build_encoder
from paredown.engine.encode.batch_config import BatchConfig
from paredown.engine.encode.classify_job import Classifications, classify_job
from paredown.engine.encode.embed_job import Embeddings, embed_job
from paredown.engine.encode.encode_job import EncodeJob
from paredown.engine.encode.prompts import PromptChoice
from paredown.engine.encode.read_pairs import Pair
from paredown.engine.encode.read_texts import Text, Truncate, as_texts
from paredown.engine.encode.rerank_job import Ranking, rerank_job
from paredown.engine.encode.run_batch import run_job
from paredown.engine.encode.score_job import Scores, score_job
from paredown.engine.encode.sparse_job import SparseVectors, sparse_job
from paredown.engine.encode.token_vector_job import TokenVectors, token_vector_job
from paredown.errors import RequestError
from paredown.executors.cache_config import CacheConfig
from paredown.executors.run_options import ExecutorChoice, RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.spec.device import Device
from paredown.spec.weight import ActivationDType

T = TypeVar("T")


class EncoderKeywords(TypedDict, total=False):
    """The fields of RunOptions that encoders have."""

    executor: ExecutorChoice
    device: Device
    activations: ActivationDType | None
    cache: CacheConfig | None


class Encoder:
    """`model` is a checkpoint folder, a GGUF file or a model of the hub: an encoder with the
    modules of sentence-transformers, a classifier, a cross-encoder, ColBERT, SPLADE, or a decoder
    that makes vectors or reranks. `notes` says what runs differently from what its files ask.

    `any_dimensions` lets vectors be cut to sizes that the model's files do not name. `config` says
    how many tokens are encoded at once; it changes no answer. The other keywords are those of
    RunOptions.

    Raises CheckpointError, UnsupportedError, CapacityError or ConfigError when it cannot be loaded.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        num_threads: int | None = None,
        config: BatchConfig | None = None,
        any_dimensions: bool = False,
        **options: Unpack[EncoderKeywords],
    ) -> None:
        checkpoint = Checkpoint.open(resolve_model(str(model)))
        if "cache" not in options:
            options["cache"] = CacheConfig.from_environment()
        run_options = RunOptions(threads=ThreadPlan.resolve(num_threads), **options)
        built = build_encoder(checkpoint, run_options, cuts_anywhere=any_dimensions)
        self._hold(built, config)
        self.notes = checkpoint.notes

    @classmethod
    def over(cls, built: BuiltEncoder, config: BatchConfig | None = None) -> "Encoder":
        """Returns an encoder over a model that is loaded already."""
        encoder = cls.__new__(cls)
        encoder._hold(built, config)
        encoder.notes = ()
        return encoder

    def _hold(self, built: BuiltEncoder, config: BatchConfig | None) -> None:
        self.model, self.executor = built.model, built.executor
        self.config = BatchConfig() if config is None else config
        self._is_lent = False

    def embed(
        self,
        texts: Text | Sequence[Text],
        *,
        input_type: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        truncate: Truncate = "refuse",
    ) -> Embeddings:
        """Returns a vector for each text; a text is a string or a list of token ids, which gets no
        special tokens.

        The prompt put before each is `prompt`, else the model's own of that name, else that for
        `input_type` ("query", "document", ...), else its default. Vectors are cut to `dimensions`
        and then brought to length 1. Longer texts than the model takes are refused, or cut as
        `truncate` says; the answer's `counts.cut` tells which. Raises RequestError before anything
        is computed.
        """
        return self._run(
            embed_job(
                self.model,
                as_texts(texts),
                prompts=PromptChoice(prompt=prompt, prompt_name=prompt_name, input_type=input_type),
                dimensions=dimensions,
                truncate=truncate,
            )
        )

    def sparse_vectors(
        self,
        texts: Text | Sequence[Text],
        *,
        input_type: str | None = None,
        truncate: Truncate = "refuse",
    ) -> SparseVectors:
        """Returns each text's weights for tokens of the vocabulary (SPLADE). Raises
        RequestError."""
        prompts = PromptChoice(input_type=input_type)
        return self._run(
            sparse_job(self.model, as_texts(texts), prompts=prompts, truncate=truncate)
        )

    def token_vectors(
        self,
        texts: Text | Sequence[Text],
        *,
        is_query: bool = False,
        truncate: Truncate = "refuse",
    ) -> TokenVectors:
        """Returns a vector for each token of each text, as ColBERT compares them: with markers, and
        with mask tokens and left-out words where the model's settings say so. A model that makes
        one vector of a text gives those behind its last layer. Raises RequestError."""
        return self._run(
            token_vector_job(self.model, as_texts(texts), is_query=is_query, truncate=truncate)
        )

    def classify(
        self, texts: Text | Sequence[Text] | Sequence[Pair], *, truncate: Truncate = "refuse"
    ) -> Classifications:
        """Returns the labels of texts, or of pairs of strings, with their probabilities. Raises
        RequestError."""
        return self._run(classify_job(self.model, texts, truncate=truncate))

    def score(
        self,
        query: str | Sequence[str],
        texts: str | Sequence[str],
        *,
        truncate: Truncate = "refuse",
    ) -> Scores:
        """Returns a score for each text, larger for what fits the query better; with several
        queries, each text's for the query in its place. Raises RequestError."""
        return self._run(
            score_job(self.model, as_strings(query), as_strings(texts), truncate=truncate)
        )

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        truncate: Truncate = "end",
    ) -> Ranking:
        """Returns the documents in the order of their scores, at most `top_n`. Long documents are
        cut unless `truncate` is "refuse". Raises RequestError."""
        return self._run(rerank_job(self.model, query, documents, top_n=top_n, truncate=truncate))

    def lend(self) -> None:
        """Lends the executor to a thread; until `take_back` this encoder computes nothing itself.
        Raises RequestError while it is lent."""
        self._check_here()
        self._is_lent = True

    def take_back(self) -> None:
        """Takes the executor back after the thread has ended."""
        self._is_lent = False

    def _run(self, job: EncodeJob[T]) -> T:
        self._check_here()
        return job.finish(run_job(self.executor, job, self.config.max_batch_tokens))

    def _check_here(self) -> None:
        if self._is_lent:
            raise RequestError(
                "an AsyncEncoder has this encoder",
                seen="an open `async with`",
                remedy="Ask the AsyncEncoder, or close it first.",
            )


def as_strings(texts: str | Sequence[str]) -> list[str]:
    """Returns the texts as a list; a single one is a list of one."""
    return [texts] if isinstance(texts, str) else list(texts)
