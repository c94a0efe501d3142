"""EncoderModel: what has to be known of an encoder to prepare texts and to read its vectors."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from paredown.engine.prompt import PromptTokenizer
from paredown.errors import CheckpointError, ConfigError, RequestError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.encoder_settings import AnswerScore, EncoderSettings
from paredown.models.text.pair_form import PairForm
from paredown.spec.head import Head, HeadKind
from paredown.spec.model import ModelSpec

# What a model does with texts; "auto" means what its files say.
Task = Literal["auto", "generate", "embed"]
# A decoder whose files name no head gives the vector of the last token, as embedders among decoders
# do.
_LAST_TOKEN = Head(kind="embedding", pooling=("last",), is_normalized=True)
# A reranker among decoders is asked for the logits of a few tokens that may come next.
_BEFORE_ANSWER = Head(kind="embedding", pooling=("last",))
_MAKES = {
    "embedding": "a vector for each text",
    "token_vectors": "a vector for each token",
    "sparse": "a weight for tokens of its vocabulary",
    "classification": "a number for each label",
}
_ASK = {
    "embedding": "embed, score or rerank",
    "token_vectors": "token_vectors, score or rerank",
    "sparse": "sparse_vectors, score or rerank",
    "classification": "classify; score and rerank where it has one label",
}


class WrongTaskError(RequestError):
    """The model is asked for something that it does not make."""


class TextTokenizer(PromptTokenizer, Protocol):
    """The part of a tokenizer that encoders use."""

    @property
    def vocabulary(self) -> dict[str, int]: ...

    @property
    def pair_form(self) -> PairForm: ...

    @property
    def has_chat_template(self) -> bool: ...

    def render_chat(
        self, messages: list[dict[str, object]], /, *, opens_answer: bool = True
    ) -> str: ...


@dataclass(frozen=True, kw_only=True)
class EncoderModel:
    """An encoder without its weights.

    `cuts_anywhere`  lets vectors be cut to any size
    `answers`        [2, hidden_size]: the output layer's rows for the tokens whose logits are a
                     reranker's score, where it is a decoder (settings.answer_score)
    """

    spec: ModelSpec
    settings: EncoderSettings
    tokenizer: TextTokenizer
    cuts_anywhere: bool = False
    answers: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        most, needed = self.settings.max_tokens, self.num_special_tokens + 1
        if most < needed:
            raise CheckpointError(
                "the model's settings leave no room for a text",
                seen=f"at most {most} tokens, {needed - 1} of them special",
                remedy="Correct max_seq_length of sentence_bert_config.json.",
            )

    @property
    def present_head(self) -> Head:
        """The head, which every encoder has."""
        assert self.spec.head is not None
        return self.spec.head

    @property
    def kind(self) -> HeadKind:
        """The kind of what the model makes of a text."""
        return "classification" if self.answers is not None else self.present_head.kind

    @property
    def size(self) -> int:
        """How many numbers a text, or a token, ends as."""
        return self.present_head.output_size(self.spec.hidden_size)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of a classifier's numbers."""
        return self.settings.labels or tuple(f"LABEL_{number}" for number in range(self.size))

    @property
    def num_special_tokens(self) -> int:
        """Tokens that the tokenizer puts around a text."""
        return len(self.tokenizer.prompt_prefix) + len(self.tokenizer.prompt_suffix)

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """The ids of all tokens by their names."""
        return self.tokenizer.vocabulary

    def check_kind(self, what: str, *kinds: HeadKind) -> None:
        """Raises WrongTaskError unless the model makes one of `kinds`."""
        if self.kind not in kinds:
            raise WrongTaskError(
                f"this model gives no {what}",
                seen=f"a model that makes {_MAKES[self.kind]}",
                remedy=f"Ask it for {_ASK[self.kind]}.",
            )


def encodes(checkpoint: Checkpoint, task: Task) -> bool:
    """Returns whether a checkpoint makes vectors or labels rather than text. Raises ConfigError
    where it should generate and cannot."""
    if task == "generate" and not checkpoint.spec.generates:
        raise ConfigError(
            "this model does not generate",
            seen=f"{checkpoint.path}: {checkpoint.spec.family} without an output layer",
            remedy="Leave --task out, or use --task embed.",
        )
    if task != "auto":
        return task == "embed"
    return checkpoint.encoder_settings is not None


def as_encoder(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint as a model with a head. A decoder whose files name none gives the
    vector of its last token. Raises UnsupportedError for an encoder-decoder, whose decoder reads
    its text across."""
    spec, settings = checkpoint.spec, checkpoint.encoder_settings
    if spec.encoder is not None:
        raise UnsupportedError(
            "an encoder-decoder makes no vectors or scores of texts",
            seen=f"{checkpoint.path}: {spec.family}",
            remedy="Let it generate (leave --task embed out), or name an encoder.",
        )
    if spec.head is None:
        is_reranker = settings is not None and settings.answer_score is not None
        spec = replace(spec, head=_BEFORE_ANSWER if is_reranker else _LAST_TOKEN)
    if settings is None:
        settings = EncoderSettings(max_tokens=spec.max_positions)
    return replace(checkpoint, spec=replace(spec, output=None), encoder_settings=settings)


def encoder_model(
    checkpoint: Checkpoint, tokenizer: TextTokenizer, *, cuts_anywhere: bool = False
) -> EncoderModel:
    """Returns what has to be known of the checkpoint's encoder. Raises CheckpointError."""
    encoder = as_encoder(checkpoint)
    settings = encoder.encoder_settings
    assert settings is not None
    answers = None
    if settings.answer_score is not None:
        answers = _answer_rows(checkpoint, settings.answer_score)
    return EncoderModel(
        spec=encoder.spec,
        settings=settings,
        tokenizer=tokenizer,
        cuts_anywhere=cuts_anywhere,
        answers=answers,
    )


def _answer_rows(checkpoint: Checkpoint, score: AnswerScore) -> npt.NDArray[np.float32]:
    """Returns the output layer's rows of the two tokens; the second is 0 where there is one."""
    ids = [score.true_token_id]
    ids += [] if score.false_token_id is None else [score.false_token_id]
    if max(ids) >= checkpoint.spec.vocab_size or not checkpoint.spec.generates:
        raise CheckpointError(
            "the model's settings name tokens that its output layer lacks",
            seen=f"tokens {ids}, vocabulary {checkpoint.spec.vocab_size}",
            remedy="Download the model again.",
        )
    rows = np.zeros((2, checkpoint.spec.hidden_size), np.float32)
    rows[: len(ids)] = checkpoint.output().rows(np.array(ids)).dequantize()
    return rows
