"""POST /v1/completions: plain text goes on."""

from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.prompt import PromptTokenizer, encode_prompt
from paredown.serve.answer import Answer, Body, Piece
from paredown.serve.body import read_json
from paredown.serve.logprobs import json_logprob
from paredown.serve.schema import CompletionRequest, parse
from paredown.serve.state import ServerState, make_jobs, tokenize


async def complete(request: Request) -> Response:
    state: ServerState = request.app.state.server
    asked = parse(CompletionRequest, await read_json(request))
    state.check_model(asked.model)
    params = asked.params()
    given = asked.prompts
    num_chars = sum(len(prompt) for prompt in given if isinstance(prompt, str))
    prompts = await tokenize(partial(_encode, state.tokenizer, given), num_chars)
    answer = Answer(
        state,
        CompletionFormat(state.tokenizer.decode),
        make_jobs(prompts, params, asked.service()),
        num_prompt_tokens=sum(map(len, prompts)),
    )
    return await answer.respond(request, stream=bool(asked.stream), usage=asked.includes_usage)


def _encode(tokenizer: PromptTokenizer, prompts: list[str | list[int]]) -> list[list[int]]:
    return [encode_prompt(tokenizer, one) if isinstance(one, str) else one for one in prompts]


class CompletionFormat:
    """Whole or in pieces, a choice of a completion looks the same."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode

    def opening(self, number: int) -> Body | None:
        return None

    def choice(self, piece: Piece) -> Body:
        return {
            "index": piece.number,
            "text": piece.text,
            "logprobs": self._logprobs(piece) if piece.logprobs else None,
            "finish_reason": piece.finish_reason,
        }

    chunk_choice = choice

    def _logprobs(self, piece: Piece) -> Body:
        """`text_offset` counts characters of the tokens' own texts from the answer's start."""
        tokens = [self._decode([row.chosen.token_id]) for row in piece.logprobs]
        offsets = []
        for token in tokens:
            offsets.append(piece.num_chars_before)
            piece.num_chars_before += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [json_logprob(row.chosen.logprob) for row in piece.logprobs],
            "top_logprobs": [
                {self._decode([one.token_id]): json_logprob(one.logprob) for one in row.top}
                for row in piece.logprobs
            ],
            "text_offset": offsets,
        }
