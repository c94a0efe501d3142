"""POST /v1/chat/completions: the next turn of a conversation."""

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from paredown.serve.answer import Answer, Body, Piece
from paredown.serve.body import read_json
from paredown.serve.errors import HttpError
from paredown.serve.logprobs import LogprobToken
from paredown.serve.schema import ChatRequest, parse
from paredown.serve.state import ServerState, make_jobs, tokenize


async def chat(request: Request) -> Response:
    state: ServerState = request.app.state.server
    asked = parse(ChatRequest, await read_json(request))
    state.check_model(asked.model)
    params = state.token_bound.apply(asked.params())
    if not state.tokenizer.has_chat_template:
        raise HttpError(
            400,
            f"the model {state.model_name!r} has no chat template; use /v1/completions",
            param="messages",
            code="no_chat_template",
        )
    messages = [message.plain() for message in asked.messages]
    # The template is the model's program, and has a process of its own: a thread waits for it.
    text = await asyncio.to_thread(state.tokenizer.render_chat, messages)
    prompt = await tokenize(partial(state.tokenizer.encode, text), len(text))
    answer = Answer(
        state,
        ChatFormat(),
        make_jobs([prompt], params, state.service(asked.service(), request)),
        num_prompt_tokens=len(prompt),
    )
    return await answer.respond(request, stream=bool(asked.stream), usage=asked.includes_usage)


class ChatFormat:
    """A whole reply has a message per choice, a stream a role and then deltas."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, number: int) -> Body | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": number, "delta": delta, "logprobs": None, "finish_reason": None}

    def choice(self, piece: Piece) -> Body:
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        return {"message": message, **self._rest(piece)}

    def chunk_choice(self, piece: Piece) -> Body:
        return {"delta": {"content": piece.text} if piece.text else {}, **self._rest(piece)}

    def _rest(self, piece: Piece) -> Body:
        rows: list[Body] = [
            {**_token(row.chosen), "top_logprobs": [_token(one) for one in row.top]}
            for row in piece.logprobs
        ]
        return {
            "index": piece.number,
            "logprobs": {"content": rows, "refusal": None} if rows else None,
            "finish_reason": piece.finish_reason,
        }


def _token(one: LogprobToken) -> Body:
    """The bytes of an answer's tokens, one after the other, are those of its text; "token" has
    U+FFFD for what is not a whole character."""
    data = one.data
    return {"token": data.decode(errors="replace"), "logprob": one.logprob, "bytes": list(data)}
