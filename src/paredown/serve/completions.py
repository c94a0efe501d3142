"""POST /v1/completions: plain text goes on."""

import logging
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.prompt import PromptTokenizer, begins_twice, encode_prompt
from paredown.serve.answer import Answer, Body, Piece
from paredown.serve.body import read_json
from paredown.serve.logprobs import LogprobToken
from paredown.serve.schema import CompletionRequest, parse
from paredown.serve.state import ServerState, make_jobs, tokenize

LOGGER = logging.getLogger(__name__)


async def complete(request: Request) -> Response:
    state: ServerState = request.app.state.server
    asked = parse(CompletionRequest, await read_json(request))
    state.check_model(asked.model)
    params = state.token_bound.apply(asked.params())
    given = asked.prompts
    num_chars = sum(len(prompt) for prompt in given if isinstance(prompt, str))
    prompts = await tokenize(partial(_encode, state.tokenizer, given), num_chars)
    answer = Answer(
        state,
        CompletionFormat(),
        make_jobs(prompts, params, state.service(asked.service(), request)),
        num_prompt_tokens=sum(map(len, prompts)),
    )
    return await answer.respond(request, stream=bool(asked.stream), usage=asked.includes_usage)


def _encode(tokenizer: PromptTokenizer, prompts: list[str | list[int]]) -> list[list[int]]:
    encoded = []
    for prompt in prompts:
        token_ids = encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt
        if isinstance(prompt, str) and begins_twice(tokenizer, token_ids):
            LOGGER.warning("a prompt begins with what is put before it: it is there twice")
        encoded.append(token_ids)
    return encoded


class CompletionFormat:
    """Whole or in pieces, a choice of a completion looks the same."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def opening(self, number: int) -> Body | None:
        return None

    def choice(self, piece: Piece) -> Body:
        return {
            "index": piece.number,
            "text": piece.text,
            "logprobs": _logprobs(piece) if piece.logprobs else None,
            "finish_reason": piece.finish_reason,
        }

    chunk_choice = choice


def _logprobs(piece: Piece) -> Body:
    """`text_offset` counts characters of the answer before each token."""
    return {
        "tokens": [_name(row.chosen) for row in piece.logprobs],
        "token_logprobs": [row.chosen.logprob for row in piece.logprobs],
        "top_logprobs": [_by_name(row.top) for row in piece.logprobs],
        "text_offset": [row.start for row in piece.logprobs],
    }


def _by_name(top: list[LogprobToken]) -> dict[str, float]:
    """The likeliest of tokens with the same name: special ones have no text."""
    found: dict[str, float] = {}
    for one in top:
        found.setdefault(_name(one), one.logprob)
    return found


def _name(one: LogprobToken) -> str:
    """The token's text; of one that cuts a character its bytes, as the OpenAI API writes them."""
    if isinstance(one.text, str):
        return one.text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in one.text)
