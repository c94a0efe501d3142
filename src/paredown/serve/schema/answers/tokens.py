"""The answers of /tokenize and /detokenize."""

from pydantic import BaseModel


class Tokens(BaseModel):
    """`token_strs` has the tokens as the vocabulary writes them, where that was asked for; an id
    without a token is null."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None


class TokensText(BaseModel):
    """`prompt` is the text of the tokens."""

    prompt: str
