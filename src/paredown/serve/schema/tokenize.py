"""The bodies of POST /tokenize and /detokenize, as vLLM has them, and as llama.cpp has them for a
text."""

from typing import Annotated, Literal

from pydantic import Field

from paredown.serve.errors import HttpError
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.message import MAX_MESSAGES, Message
from paredown.serve.schema.reasoning import MAX_VALUES, Value
from paredown.serve.schema.strict import Label, Strict, TokenIds, parse
from paredown.serve.schema.tools import Tools

# Fields that go with another.
_NEEDED = {
    "tools": "messages",
    "chat_template_kwargs": "messages",
    "add_generation_prompt": "messages",
    "add_special": "content",
    "with_pieces": "content",
}


class TokenizeRequest(Strict):
    """The body of POST /tokenize: a text or a conversation. `add_special_tokens` puts what stands
    around every text; its default is true for a text, and false for a conversation, whose template
    does that. `content` is a text as llama.cpp asks for it, `add_special` by default false, and
    `with_pieces` asks for each token's text."""

    model: Label | None = None
    prompt: str | None = None
    messages: (
        Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
        | None
    ) = None
    tools: Tools | None = None
    chat_template_kwargs: Annotated[dict[Label, Value], Field(max_length=MAX_VALUES)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: Literal[True] | None = None
    return_token_strs: bool | None = None
    content: str | None = None
    add_special: bool | None = None
    with_pieces: bool | None = None

    @property
    def text(self) -> str | None:
        return self.prompt if self.content is None else self.content

    @property
    def surrounds(self) -> bool:
        """Returns whether a text gets what stands around every text."""
        if self.content is not None:
            return bool(self.add_special)
        return self.add_special_tokens is not False

    def chat(self) -> ChatRequest:
        """Returns the conversation; only for requests that have one."""
        assert self.messages is not None
        return ChatRequest.model_construct(
            messages=self.messages,
            tools=self.tools,
            chat_template_kwargs=self.chat_template_kwargs,
        )


class DetokenizeRequest(Strict):
    """The body of POST /detokenize."""

    model: Label | None = None
    tokens: TokenIds


def read_tokenize(body: object) -> TokenizeRequest:
    """Returns the request. Raises HttpError."""
    asked = parse(TokenizeRequest, body)
    if sum(one is not None for one in (asked.prompt, asked.messages, asked.content)) != 1:
        raise HttpError(400, "give prompt or messages, or content, and not two", param="prompt")
    for name, needed in _NEEDED.items():
        if getattr(asked, needed) is None and getattr(asked, name) is not None:
            raise HttpError(400, f"{name} needs {needed}", param=name)
    return asked


def read_detokenize(body: object) -> DetokenizeRequest:
    """Returns the request. Raises HttpError."""
    return parse(DetokenizeRequest, body)
