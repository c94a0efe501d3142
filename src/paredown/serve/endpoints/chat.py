"""POST /v1/chat/completions: the next turn of a conversation."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from paredown.serve.answers.answer import Answer
from paredown.serve.answers.chat_format import ChatFormat
from paredown.serve.answers.choices_format import ChoicesFormat
from paredown.serve.intake.chat_turn import prepare_chat
from paredown.serve.schema.chat import read_chat
from paredown.serve.task_state import generation_state


async def chat(request: Request) -> Response:
    answer = await _prepare(request)
    return await answer.respond(request)


async def _prepare(request: Request) -> Answer:
    """Keeps nothing of the texts when it returns."""
    state = generation_state(request)
    read = partial(read_chat, state.sampling_defaults)
    asked, params = await state.intake.read(request, read, state.max_positions)
    state.check_model(asked.model)
    turn = await prepare_chat(state, request, asked, params)
    shape = ChoicesFormat(
        state,
        ChatFormat(),
        num_answers=params.n,
        tells_usage=asked.includes_usage,
        tells_timings=bool(asked.timings),
    )
    return Answer(
        state,
        shape,
        [turn.job],
        admission=turn.admission,
        stream=bool(asked.stream),
        make_reader=turn.make_reader,
        headers=turn.headers,
    )
