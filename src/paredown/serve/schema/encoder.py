"""The request schema of encoders, as strict as that of generation."""

from typing import Annotated, Any, Literal, cast

from pydantic import Field, field_validator, model_validator

from paredown.engine.encode.prompts import PromptChoice
from paredown.serve.errors import HttpError
from paredown.serve.schema.strict import Label, Strict, Texts, TokenIds, TokenSequences, drop_no_ops

MAX_TEXTS = 2048
# Fields of other servers that we do not serve, each with the values that ask for nothing.
NO_OPS: dict[str, tuple[object, ...]] = {
    "add_special_tokens": (None, True),
    "max_chunks_per_doc": (None,),
    "max_tokens_per_doc": (None,),
    "priority": (None, 0),
    "rank_fields": (None, ["text"]),
    "truncate_prompt_tokens": (None,),
}
Truncation = Literal["refuse", "end", "start"]


class EncoderRequest(Strict):
    """The fields of all endpoints. `user` names the tenant for fair turns; `truncate` says whether
    texts that are longer than the model takes are refused or lose their end or start."""

    model: Label | None = None
    user: Label | None = None
    truncate: Truncation | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, fields: Any) -> Any:
        return drop_no_ops(fields, NO_OPS)


class EmbeddingRequest(EncoderRequest):
    """The body of POST /v1/embeddings."""

    input: str | Texts | TokenIds | TokenSequences
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    input_type: Label | None = None
    prompt_name: Label | None = None
    prompt: str | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _count_texts(cls, texts: Any) -> Any:
        return counted(texts, "input")

    @property
    def texts(self) -> list[str | list[int]]:
        # A list's entries all have the type of the first.
        is_one = isinstance(self.input, str) or isinstance(self.input[0], int)
        return cast("list[str | list[int]]", [self.input] if is_one else self.input)

    @property
    def prompts(self) -> PromptChoice:
        return PromptChoice(
            prompt=self.prompt, prompt_name=self.prompt_name, input_type=self.input_type
        )


class Document(Strict):
    """A document as an object."""

    text: str


class RerankRequest(EncoderRequest):
    """The body of POST /v1/rerank and /rerank."""

    query: str
    documents: Annotated[list[str | Document], Field(fail_fast=True)]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = None

    @field_validator("documents", mode="before")
    @classmethod
    def _count_texts(cls, texts: Any) -> Any:
        return counted(texts, "documents")

    @property
    def texts(self) -> list[str]:
        return [one if isinstance(one, str) else one.text for one in self.documents]


class ScoreRequest(EncoderRequest):
    """The body of POST /v1/score: one text with each of many, or texts in pairs."""

    text_1: str | Texts
    text_2: str | Texts

    @field_validator("text_1", "text_2", mode="before")
    @classmethod
    def _count_texts(cls, texts: Any) -> Any:
        return counted(texts, "text_1 or text_2")


class PairedText(Strict):
    """A text, or a pair of texts."""

    text: str
    text_pair: str


class ClassifyRequest(EncoderRequest):
    """The body of POST /v1/classify."""

    input: str | Texts | Annotated[list[PairedText], Field(fail_fast=True)]

    @field_validator("input", mode="before")
    @classmethod
    def _count_texts(cls, texts: Any) -> Any:
        return counted(texts, "input")

    @property
    def texts(self) -> list[str] | list[tuple[str, str]]:
        if isinstance(self.input, str):
            return [self.input]
        pairs = [one for one in self.input if isinstance(one, PairedText)]
        if pairs:
            return [(one.text, one.text_pair) for one in pairs]
        return [one for one in self.input if isinstance(one, str)]


def counted(texts: Any, field: str) -> Any:
    """Returns the texts. Raises HttpError for none, for an empty one by itself, and for too many,
    before they are looked at one by one."""
    if texts in ("", []):
        raise HttpError(400, f"{field} is empty", param=field.partition(" ")[0])
    if isinstance(texts, list) and len(texts) > MAX_TEXTS and not isinstance(texts[0], int):
        raise HttpError(
            400,
            f"{field} holds {len(texts)} texts, at most {MAX_TEXTS}",
            param=field.partition(" ")[0],
        )
    return texts
