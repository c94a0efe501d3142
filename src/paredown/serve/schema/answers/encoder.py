"""The answers of encoders. `truncated` has the numbers of the texts that were cut, where any
were."""

from typing import Literal

from pydantic import BaseModel


class EncoderUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """`embedding` is little-endian float32 in base64 where `encoding_format` asks for it."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EncoderUsage
    truncated: list[int] | None = None


class RankedText(BaseModel):
    text: str


class RankedResult(BaseModel):
    """`index` is the document's place in the request."""

    index: int
    relevance_score: float
    document: RankedText | None = None
    truncated: bool | None = None


class Ranking(BaseModel):
    """The best document first."""

    id: str
    object: Literal["list"]
    model: str
    results: list[RankedResult]
    usage: EncoderUsage


class Score(BaseModel):
    index: int
    object: Literal["score"]
    score: float


class ScoreList(BaseModel):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: EncoderUsage
    truncated: list[int] | None = None


class LabelledText(BaseModel):
    """`probs` are the probabilities of all labels."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class Classification(BaseModel):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[LabelledText]
    usage: EncoderUsage
    truncated: list[int] | None = None
