"""POST /v1/completions: continues plain text, and scores it."""

import logging
from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.prompt import begins_twice, check_length, encode_prompt
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.session import Job
from paredown.models.text.fill_in_middle import FillInMiddle
from paredown.serve.answers.answer import Answer
from paredown.serve.answers.choices_format import ChoicesFormat
from paredown.serve.answers.completion_format import CompletionFormat
from paredown.serve.answers.echo import Echo, echo
from paredown.serve.errors import ClientGoneError, HttpError
from paredown.serve.intake.admission import Admission
from paredown.serve.intake.side_thread import Wanted
from paredown.serve.schema.completion import CompletionRequest, read_completion
from paredown.serve.state import ServerState
from paredown.serve.task_state import generation_state

LOGGER = logging.getLogger(__name__)
# Each token of a prompt stands for at least a byte of it, and no character has more.
MAX_CHAR_BYTES = 4


async def complete(request: Request) -> Response:
    answer = await _prepare(request)
    return await answer.respond(request)


async def _prepare(request: Request) -> Answer:
    """Prepares the answer. When it returns, it keeps none of the texts but those to be echoed."""
    state = generation_state(request)
    read = partial(read_completion, state.sampling_defaults)
    asked, params = await state.intake.read(request, read, state.max_positions)
    state.check_model(asked.model)
    params = state.token_bound.apply(params)
    if state.is_encoder_decoder:
        _check_apart(state, asked)
    if asked.suffix:
        params = _ending_in_gap(params, _fill_in_middle(state))
    given = asked.prompts
    service = state.service(asked.service(), request, len(given) * params.n)
    size = sum(len(prompt) for prompt in given if isinstance(prompt, str))
    size += len(given) * len(asked.suffix or "")
    admission = Admission(state, len(given), params, _most_prompt_tokens(state, given))
    try:
        await state.grammars.compile(params.grammar)
        prompts, echoes = await state.intake.tokenize(
            request, state.tokenizer, size, partial(_read_prompts, state, asked)
        )
        choice = CompletionFormat(
            state.tokenizer,
            prompts=prompts if asked.return_token_ids else (),
            echoes=echoes,
            num_choices=params.n,
            num_top=asked.logprobs,
            num_prompt_top=asked.prompt_logprobs,
            tells_token_ids=bool(asked.return_token_ids),
        )
        shape = ChoicesFormat(
            state,
            choice,
            num_answers=len(prompts) * params.n,
            tells_usage=asked.includes_usage,
            tells_timings=bool(asked.timings),
        )
        return Answer(
            state,
            shape,
            [Job(prompt, params, service) for prompt in prompts],
            admission=admission,
            stream=bool(asked.stream),
            num_echoed_chars=params.n * sum(len(one.text) for one in echoes),
        )
    except BaseException:
        admission.close()
        raise


def _check_apart(state: ServerState, asked: CompletionRequest) -> None:
    """Raises HttpError for what only makes sense where an answer goes on with its prompt."""
    for field, reason in (
        ("echo", "an encoder reads the prompt, and the answer does not go on with it"),
        ("prompt_logprobs", "an encoder reads the prompt as a whole, and predicts none of it"),
        ("suffix", "it does not write between two texts"),
    ):
        value = getattr(asked, field)
        if value is not None and value is not False and value != "":
            raise HttpError(
                400,
                f"{field}: the model {state.model_name!r} is an encoder-decoder: {reason}; leave "
                "it out",
                param=field,
                code="unsupported_parameter",
            )


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


def _most_prompt_tokens(state: ServerState, given: list[str | list[int]]) -> int:
    """Returns how many tokens the prompts may come to."""
    sizes = (len(one) * MAX_CHAR_BYTES if isinstance(one, str) else len(one) for one in given)
    return sum(min(size + 1, state.max_positions) for size in sizes)


def _read_prompts(
    state: ServerState, asked: CompletionRequest, wanted: Wanted
) -> tuple[list[list[int]], list[Echo]]:
    """Returns the prompts as tokens, and what is echoed of each."""
    given = asked.prompts
    surrounds = asked.add_special_tokens is not False
    prompts = _encode(state, given, wanted, suffix=asked.suffix or None, surrounds=surrounds)
    echoes = list[Echo]()
    for prompt, token_ids in zip(given, prompts, strict=True):
        if not asked.echo:
            break
        if wanted.is_gone:
            raise ClientGoneError
        text = prompt if isinstance(prompt, str) else None
        places_tokens = asked.logprobs is not None
        echoes.append(echo(state.tokenizer, text, token_ids, places_tokens=places_tokens))
    return prompts, echoes


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
