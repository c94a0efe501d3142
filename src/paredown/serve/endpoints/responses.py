"""POST /v1/responses: the next turn of a conversation, as a list of items.

A response becomes a chat, so that there is one path for both.
"""

from functools import partial
from sys import getsizeof

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.serve.answers.answer import Answer
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.output_item import OutputItem
from paredown.serve.answers.response_format import FinishedResponse, ResponseFormat
from paredown.serve.caller import Caller
from paredown.serve.intake.chat_turn import count_tokens, prepare_chat
from paredown.serve.response_store import StoredResponse
from paredown.serve.schema.message import Message
from paredown.serve.schema.response import (
    PromptOfResponse,
    read_prompt_of_response,
    read_response,
)
from paredown.serve.schema.response_items import (
    FunctionCallItem,
    KnownItem,
    MessageItem,
    ReasoningItem,
    ReasoningText,
    as_messages,
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
    chat = asked.chat(_conversation(state, request, asked))
    num_tokens = await count_tokens(state, request, chat)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": num_tokens})


async def _prepare(request: Request) -> Answer:
    """Keeps of the texts what is stored, where anything is."""
    state = generation_state(request)
    asked = await state.intake.read(request, read_response, state.max_positions)
    state.check_model(asked.model)
    messages = _conversation(state, request, asked)
    chat = asked.chat(messages)
    turn = await prepare_chat(state, request, chat, chat.params(state.sampling_defaults))
    settings, keep = asked.settings(state.model_name), _keep_nothing
    num_kept_bytes = len(to_json(settings))
    if asked.is_stored:
        keep = partial(_keep, state, state.owner(request), messages, asked.shown_items)
        num_kept_bytes += sum(one.num_bytes for one in messages)
        num_kept_bytes += sum(getsizeof(text) for _, text in asked.shown_items)
    try:
        turn.admission.keep_texts(num_kept_bytes, Caller.of(request).address)
    except BaseException:
        turn.admission.close()
        raise
    return Answer(
        state,
        ResponseFormat(settings, keep),
        [turn.job],
        admission=turn.admission,
        stream=bool(asked.stream),
        make_reader=turn.make_reader,
        headers=turn.headers,
    )


def _conversation(state: ServerState, request: Request, asked: PromptOfResponse) -> list[Message]:
    """Returns the messages of the response that this one goes on from, and its own. Raises
    HttpError 404."""
    owner = state.owner(request)
    own = asked.own_messages(partial(state.responses.find_item, owner=owner))
    if asked.previous_response_id is None:
        return own
    return [*state.responses.get(asked.previous_response_id, owner).messages, *own]


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
    outputs = {one.id: _as_item(one) for one in finished.items}
    state.responses.put(
        StoredResponse(
            id=str(finished.body["id"]),
            owner=owner,
            text=to_json(finished.body),
            items=items,
            outputs=outputs,
            messages=[*messages, *as_messages(list(outputs.values()))],
        )
    )


def _as_item(item: OutputItem) -> KnownItem:
    """Returns what the model said as a client may send it back."""
    match item.kind:
        case "message":
            return MessageItem(role="assistant", content=item.text)
        case "reasoning":
            said = ReasoningText(type="reasoning_text", text=item.text)
            return ReasoningItem(type="reasoning", content=[said])
        case "function_call":
            return FunctionCallItem(
                type="function_call",
                call_id=item.call_id,
                name=item.name,
                arguments=item.text,
            )
