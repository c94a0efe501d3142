"""The answers of /tokenize and /detokenize."""

from pydantic import BaseModel


class TokenPiece(BaseModel):
    """A token with its text, or its bytes where they are no whole characters."""

    id: int
    piece: str | list[int]


class Tokens(BaseModel):
    """`tokens` are ids, or pieces where that was asked for. `token_strs` has the tokens as the
    vocabulary writes them, where that was asked for; an id without a token is null."""

    count: int
    max_model_len: int
    tokens: list[int] | list[TokenPiece]
    token_strs: list[str | None] | None


class TokensText(BaseModel):
    """The text of the tokens, twice."""

    prompt: str
    content: str
