"""POST /v1/messages: the next turn of a conversation, as Anthropic's clients ask for it.

A message becomes a chat, so that there is one path for both.
"""

from collections.abc import Awaitable, Callable
from functools import wraps

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.errors import ParedownError
from paredown.serve.answers.answer import Answer
from paredown.serve.answers.message_format import MessageFormat
from paredown.serve.errors import HttpError, as_http_error
from paredown.serve.intake.chat_turn import count_tokens, prepare_chat
from paredown.serve.message_error import message_error
from paredown.serve.schema.messages import read_message, read_prompt_of_message
from paredown.serve.task_state import generation_state

Endpoint = Callable[[Request], Awaitable[Response]]


def _tells_errors(endpoint: Endpoint) -> Endpoint:
    """Returns the endpoint with errors in the form of the Messages API."""

    @wraps(endpoint)
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (HttpError, ParedownError) as error:
            fault = error if isinstance(error, HttpError) else as_http_error(error)
            return fault.response(body=message_error(fault))

    return answered


@_tells_errors
async def create_message(request: Request) -> Response:
    answer = await _prepare(request)
    return await answer.respond(request)


@_tells_errors
async def count_message_tokens(request: Request) -> Response:
    """POST /v1/messages/count_tokens: how long a prompt is."""
    state = generation_state(request)
    asked = await state.intake.read(request, read_prompt_of_message, state.max_positions)
    state.check_model(asked.model)
    chat = asked.chat()
    return JSONResponse({"input_tokens": await count_tokens(state, request, chat)})


async def _prepare(request: Request) -> Answer:
    """Keeps nothing of the texts when it returns."""
    state = generation_state(request)
    asked = await state.intake.read(request, read_message, state.max_positions)
    state.check_model(asked.model)
    chat = asked.chat()
    turn = await prepare_chat(state, request, chat, chat.params(state.sampling_defaults))
    return Answer(
        state,
        MessageFormat(state.model_name, len(turn.job.prompt_token_ids)),
        [turn.job],
        admission=turn.admission,
        stream=bool(asked.stream),
        make_reader=turn.make_reader,
        headers=turn.headers,
    )
