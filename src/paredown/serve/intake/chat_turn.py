"""ChatTurn: a conversation on its way to the engine, whichever API it came by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from starlette.requests import Request

from paredown.engine.grammar.grammar import GrammarError
from paredown.engine.prompt import check_length
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.session import Job
from paredown.serve.answers.turn_reader import ParsedReader, PlainReader, TurnReader
from paredown.serve.caller import Caller
from paredown.serve.errors import HttpError
from paredown.serve.intake.admission import Admission
from paredown.serve.intake.chat_prompt import ChatPrompt, render_chat
from paredown.serve.intake.thinking_budget import ThinkingBudget
from paredown.serve.intake.turn_grammar import turn_grammars
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.tools import ToolUse
from paredown.serve.state import ServerState, ServerTokenizer

# Tells in a header of the reply what a request asked for in vain.
NOTE_HEADER = "X-Paredown-Note"


@dataclass(frozen=True, kw_only=True)
class ChatTurn:
    """The prompt with its settings, and the places that it holds: whoever gets it closes the
    admission. Each answer is read by a reader of its own; `headers` go with the reply."""

    job: Job
    admission: Admission
    make_reader: Callable[[], TurnReader]
    headers: Mapping[str, str]


async def prepare_chat(
    state: ServerState, request: Request, asked: ChatRequest, params: SamplingParams
) -> ChatTurn:
    """Returns the turn, without any of the texts. Raises HttpError, and what rendering, encoding
    and admission raise."""
    params = state.token_bound.apply(params)
    check_chat(state, len(asked.messages))
    use = asked.tool_use()
    service = state.service(asked.service(), request, params.n)
    admission = Admission(state, 1, params)
    try:
        if use is not None:
            admission.keep_texts(use.num_chars, Caller.of(request).address)
        chat = await _rendered(state, request, asked, use)
        token_ids = await _encoded(state, request, chat)
        params = _budgeted(state.tokenizer, chat, asked.thinking_budget, params)
        params, leaves_room = await _constrained(state, chat, use, params)
    except BaseException:
        admission.close()
        raise
    return ChatTurn(
        job=Job(token_ids, params, service),
        admission=admission,
        make_reader=_reader_maker(chat, use, leaves_room=leaves_room),
        headers=_headers(chat.notes),
    )


async def count_tokens(state: ServerState, request: Request, asked: ChatRequest) -> int:
    """Returns how many tokens the prompt of a chat has. Raises what `prepare_chat` raises."""
    return len(await encode_chat(state, request, asked))


async def encode_chat(state: ServerState, request: Request, asked: ChatRequest) -> list[int]:
    """Returns the tokens of the prompt of a chat. Raises what `prepare_chat` raises."""
    check_chat(state, len(asked.messages))
    chat = await _rendered(state, request, asked, asked.tool_use())
    return await _encoded(state, request, chat)


def check_chat(state: ServerState, num_messages: int) -> None:
    """Raises HttpError for a model that does not chat, and for more messages than the context has
    tokens: each takes some, so that they need not be rendered."""
    if not state.tokenizer.has_chat_template:
        raise HttpError(
            400,
            f"the model {state.model_name!r} has no chat template; use /v1/completions",
            param="messages",
            code="no_chat_template",
        )
    if num_messages > state.max_positions:
        raise HttpError(
            400,
            f"the conversation has {num_messages} messages, more than the {state.max_positions} "
            "tokens of the model's context; send the last of them",
            param="messages",
            code="invalid_value",
        )


async def _rendered(
    state: ServerState, request: Request, asked: ChatRequest, use: ToolUse | None
) -> ChatPrompt:
    asked.template_values()  # an error comes before any work
    return await state.intake.render(
        request, asked.num_chars, lambda wanted: render_chat(state.tokenizer, asked, use)
    )


async def _encoded(state: ServerState, request: Request, chat: ChatPrompt) -> list[int]:
    tokenizer = state.tokenizer
    text = chat.rendered.text
    check_length(tokenizer, text, state.worker.max_prompt_tokens)
    return await state.intake.tokenize(
        request, tokenizer, len(text), lambda wanted: tokenizer.encode_rendered(chat.rendered)
    )


def _budgeted(
    tokenizer: ServerTokenizer, chat: ChatPrompt, budget: int | None, params: SamplingParams
) -> SamplingParams:
    """Returns the parameters with a filter that ends reasoning in time, where a budget is given."""
    reasoning = chat.form.reasoning
    if budget is None or reasoning is None:
        return params
    token_filter = ThinkingBudget.of(
        tokenizer, reasoning, num_tokens=budget, is_open=chat.is_reasoning_open
    )
    return replace(params, token_filter=token_filter)


async def _constrained(
    state: ServerState, chat: ChatPrompt, use: ToolUse | None, params: SamplingParams
) -> tuple[SamplingParams, bool]:
    """Returns the parameters with the turn's grammar, compiled, and whether it leaves room for
    reasoning. Raises GrammarError where none can be used."""
    wrong: GrammarError | None = None
    for turn in turn_grammars(state.tokenizer, chat, use, params.grammar):
        try:
            await state.grammars.compile(turn.grammar)
        except GrammarError as error:
            wrong = error
            continue
        return replace(params, grammar=turn.grammar), turn.leaves_room
    if wrong is not None:
        raise wrong
    return params, True


def _reader_maker(
    chat: ChatPrompt, use: ToolUse | None, *, leaves_room: bool
) -> Callable[[], TurnReader]:
    """Returns what makes the reader of an answer, which may begin with reasoning where its grammar
    `leaves_room`. It holds none of the conversation."""
    form, end_id = chat.form, chat.reasoning_end_id
    is_open = chat.is_reasoning_open and leaves_room
    if form.reasoning is None and (use is None or form.tool_format is None):
        return PlainReader
    tools = None if use is None else use.tools
    are_parallel = use is None or use.are_parallel

    def make() -> TurnReader:
        parser = form.parser(tools=tools, reasoning_open=is_open, parallel=are_parallel)
        return ParsedReader(parser, is_reasoning=is_open, reasoning_end_id=end_id)

    return make


def _headers(notes: tuple[str, ...]) -> Mapping[str, str]:
    return {NOTE_HEADER: "; ".join(notes)} if notes else {}
