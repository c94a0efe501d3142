"""POST /v1/completions: continues plain text."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.prompt import begins_twice, check_length, encode_prompt
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.worker import Job
from paredown.models.text.fill_in_middle import FillInMiddle
from paredown.serve.answers.answer import Answer
from paredown.serve.answers.choices_format import ChoicesFormat
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.logprobs import LOWEST_LOGPROB, LogprobRows, LogprobToken
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.token_parts import Parts, TokenParts
from paredown.serve.answers.usage import Body
from paredown.serve.answers.whole_answer import WholeAnswer
from paredown.serve.errors import ClientGoneError, HttpError
from paredown.serve.intake.admission import Admission
from paredown.serve.intake.side_thread import Wanted
from paredown.serve.schema.completion import read_completion
from paredown.serve.state import ServerState
from paredown.serve.task_state import generation_state

LOGGER = logging.getLogger(__name__)


async def complete(request: Request) -> Response:
    answer = await _prepare(request)
    return await answer.respond(request)


async def _prepare(request: Request) -> Answer:
    """Prepares the answer. When it returns, it keeps none of the texts."""
    state = generation_state(request)
    read = partial(read_completion, state.sampling_defaults)
    asked, params = await state.intake.read(request, read, state.max_positions)
    state.check_model(asked.model)
    params = state.token_bound.apply(params)
    if asked.suffix:
        params = _ending_in_gap(params, _fill_in_middle(state))
    given = asked.prompts
    service = state.service(asked.service(), request, len(given) * params.n)
    size = sum(len(prompt) for prompt in given if isinstance(prompt, str))
    size += len(given) * len(asked.suffix or "")
    encode = partial(
        _encode,
        state,
        given,
        suffix=asked.suffix or None,
        surrounds=asked.add_special_tokens is not False,
    )
    admission = Admission(state, len(given), params)
    try:
        await state.grammars.compile(params.grammar)
        prompts = await state.intake.tokenize(
            request, state.tokenizer, size, lambda wanted: encode(wanted=wanted)
        )
        shape = ChoicesFormat(
            state,
            CompletionFormat(),
            num_answers=len(prompts) * params.n,
            tells_usage=asked.includes_usage,
        )
        return Answer(
            state,
            shape,
            [Job(prompt, params, service) for prompt in prompts],
            admission=admission,
            stream=bool(asked.stream),
        )
    except BaseException:
        admission.close()
        raise


def _fill_in_middle(state: ServerState) -> FillInMiddle:
    """Returns the tokens around a gap. Raises HttpError for a model that was not made for it."""
    found = state.tokenizer.fill_in_middle
    if found is None:
        raise HttpError(
            400,
            f"suffix: the model {state.model_name!r} does not write between two texts, since its "
            "tokenizer has no tokens for that (<|fim_prefix|> and the like); leave it out",
            param="suffix",
            code="unsupported_parameter",
        )
    return found


def _ending_in_gap(params: SamplingParams, gap: FillInMiddle) -> SamplingParams:
    if params.ignore_eos:
        return params
    return replace(params, stop_token_ids=(*params.stop_token_ids, *gap.end_ids))


def _encode(
    state: ServerState,
    prompts: list[str | list[int]],
    wanted: Wanted,
    *,
    suffix: str | None = None,
    surrounds: bool = True,
) -> list[list[int]]:
    """Encodes the prompts, which end before `suffix` where there is one. `surrounds` is whether
    they get the tokens that stand around every text. Raises RequestError or CapacityError for one
    that is too long, before the others are tokenized."""
    tokenizer, worker = state.tokenizer, state.worker
    for prompt in prompts:
        if isinstance(prompt, str):
            check_length(tokenizer, prompt + (suffix or ""), worker.max_prompt_tokens)
        else:
            worker.check_prompt(len(prompt))
    encoded = []
    for prompt in prompts:
        if wanted.is_gone:
            raise ClientGoneError
        if not isinstance(prompt, str):
            token_ids = prompt
        elif suffix is not None:
            around = _fill_in_middle(state).surround(
                tokenizer.encode(prompt), tokenizer.encode(suffix)
            )
            token_ids = [*(tokenizer.prompt_prefix if surrounds else ()), *around]
        else:
            token_ids = encode_prompt(tokenizer, prompt) if surrounds else tokenizer.encode(prompt)
        worker.check_prompt(len(token_ids))
        if isinstance(prompt, str) and surrounds and begins_twice(tokenizer, token_ids):
            LOGGER.warning("a prompt begins with what is put before it: it is there twice")
        encoded.append(token_ids)
    return encoded


class CompletionFormat:
    """Formats a choice, which looks the same in a whole reply and in pieces."""

    id_prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def opening(self, number: int) -> Body | None:
        return None

    def chunk_choice(self, piece: Piece) -> Body:
        return {
            "index": piece.number,
            "text": piece.text,
            "logprobs": _logprobs(piece) if piece.logprobs else None,
            "finish_reason": piece.finish_reason,
        }

    def choice_json(
        self, answer: WholeAnswer, rows: LogprobRows, parts: TokenParts
    ) -> Iterator[str]:
        yield to_json({"index": answer.number, "text": answer.text})[:-1] + ',"logprobs":'
        if answer.logprobs:
            yield from _logprobs_json(answer, rows, parts)
        else:
            yield "null"
        yield f',"finish_reason":{to_json(answer.finish_reason)}}}'

    def token_parts(self, text: str | bytes) -> Parts:
        return to_json(_name(LogprobToken(text, 0.0))) + ":", ""


def _logprobs(piece: Piece) -> Body:
    """Returns the log-probabilities; `text_offset` counts the answer's characters before each
    token."""
    return {
        "tokens": [_name(row.chosen) for row in piece.logprobs],
        "token_logprobs": [row.chosen.logprob for row in piece.logprobs],
        "top_logprobs": [_by_name(row.top) for row in piece.logprobs],
        "text_offset": [row.start for row in piece.logprobs],
    }


def _logprobs_json(answer: WholeAnswer, rows: LogprobRows, parts: TokenParts) -> Iterator[str]:
    """Yields the JSON of `_logprobs` in pieces. Each list has an entry for every row."""
    packed, numbers = answer.logprobs, range(len(answer.logprobs))
    names, starts = [], []
    for i in numbers:
        placed = rows.place(packed.row(i)[0][0])
        names.append(parts.write(placed.text)[0])
        starts.append(placed.start)
        yield ""  # a turn for others
    yield '{"tokens":['
    for i in numbers:
        yield ("," if i else "") + names[i][:-1]
    yield '],"token_logprobs":['
    for i in numbers:
        yield ("," if i else "") + repr(max(packed.row(i)[1][0], LOWEST_LOGPROB))
    yield '],"top_logprobs":['
    for i in numbers:
        yield ("," if i else "") + _by_name_json(*packed.row(i), names[i], parts)
    yield '],"text_offset":['
    for i in numbers:
        yield ("," if i else "") + str(starts[i])
    yield "]}"


def _by_name_json(
    token_ids: Sequence[int], logprobs: Sequence[float], chosen: str, parts: TokenParts
) -> str:
    """Returns the JSON of `_by_name`; the first token is the chosen one."""
    chosen_id, found = token_ids[0], dict[str, float]()
    for token_id, logprob in zip(token_ids[1:], logprobs[1:], strict=True):
        name = chosen if token_id == chosen_id else parts[token_id][0]
        found.setdefault(name, max(logprob, LOWEST_LOGPROB))
    return "{" + ",".join([f"{name}{logprob!r}" for name, logprob in found.items()]) + "}"


def _by_name(top: list[LogprobToken]) -> dict[str, float]:
    """Returns the best log-probability for each name; special tokens share the empty name."""
    found: dict[str, float] = {}
    for one in top:
        found.setdefault(_name(one), one.logprob)
    return found


def _name(one: LogprobToken) -> str:
    """Returns the token's text, or its bytes in the OpenAI API's notation if it cuts a
    character."""
    if isinstance(one.text, str):
        return one.text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in one.text)
