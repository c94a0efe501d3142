"""POST /v1/responses: the next turn of a conversation, as a list of items.

A response becomes a chat, so that there is one path for both.
"""

from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.serve.answers.answer import Answer
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.output_item import OutputItem
from paredown.serve.answers.response_format import FinishedResponse, ResponseFormat
from paredown.serve.intake.chat_turn import count_tokens, prepare_chat
from paredown.serve.response_store import StoredResponse
from paredown.serve.schema.message import CalledFunction, Message, ToolCall
from paredown.serve.schema.response import (
    PromptOfResponse,
    read_prompt_of_response,
    read_response,
)
from paredown.serve.state import ServerState
from paredown.serve.task_state import generation_state


async def respond(request: Request) -> Response:
    answer = await _prepare(request)
    return await answer.respond(request)


async def count_input_tokens(request: Request) -> Response:
    """POST /v1/responses/input_tokens: how long a prompt is."""
    state = generation_state(request)
    asked = await state.intake.read(request, read_prompt_of_response, state.max_positions)
    state.check_model(asked.model)
    chat = asked.chat(_earlier(state, request, asked))
    num_tokens = await count_tokens(state, request, chat)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": num_tokens})


async def _prepare(request: Request) -> Answer:
    """Keeps of the texts what is stored, where anything is."""
    state = generation_state(request)
    asked = await state.intake.read(request, read_response, state.max_positions)
    state.check_model(asked.model)
    earlier = _earlier(state, request, asked)
    chat = asked.chat(earlier)
    turn = await prepare_chat(state, request, chat, chat.params(state.sampling_defaults))
    keep = _keep_nothing
    if asked.is_stored:
        messages = [*earlier, *asked.own_messages]
        keep = partial(_keep, state, state.owner(request), messages, asked.shown_items)
    return Answer(
        state,
        ResponseFormat(asked.settings(state.model_name), keep),
        [turn.job],
        admission=turn.admission,
        stream=bool(asked.stream),
        make_reader=turn.make_reader,
        headers=turn.headers,
    )


def _earlier(state: ServerState, request: Request, asked: PromptOfResponse) -> Sequence[Message]:
    """Returns the messages of the response that this one goes on from. Raises HttpError 404."""
    if asked.previous_response_id is None:
        return ()
    return state.responses.get(asked.previous_response_id, state.owner(request)).messages


def _keep_nothing(finished: FinishedResponse) -> None:
    pass


def _keep(
    state: ServerState,
    owner: str,
    messages: list[Message],
    items: list[tuple[str, str]],
    finished: FinishedResponse,
) -> None:
    """Stores a response with its conversation."""
    state.responses.put(
        StoredResponse(
            id=str(finished.body["id"]),
            owner=owner,
            text=to_json(finished.body),
            items=items,
            messages=[*messages, _message(finished.items)],
        )
    )


def _message(items: Sequence[OutputItem]) -> Message:
    """Returns what the model said as a message of a chat."""
    texts = {
        kind: "".join(one.text for one in items if one.kind == kind)
        for kind in ("message", "reasoning")
    }
    calls = [
        ToolCall(
            id=one.call_id,
            type="function",
            function=CalledFunction(name=one.name, arguments=one.text),
        )
        for one in items
        if one.kind == "function_call"
    ]
    return Message(
        role="assistant",
        content=texts["message"],
        reasoning_content=texts["reasoning"] or None,
        tool_calls=calls or None,
    )
