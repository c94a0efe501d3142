"""POST /v1/chat/completions: the next turn of a conversation."""

from collections.abc import Iterator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.prompt import check_length
from paredown.engine.worker import Job
from paredown.serve.answers.answer import Answer, Body, Piece, WholeAnswer
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.logprobs import LOWEST_LOGPROB, LogprobRows, LogprobToken
from paredown.serve.answers.token_parts import Parts, TokenParts
from paredown.serve.errors import HttpError
from paredown.serve.intake.admission import Admission
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
    params = state.token_bound.apply(params)
    if not state.tokenizer.has_chat_template:
        raise HttpError(
            400,
            f"the model {state.model_name!r} has no chat template; use /v1/completions",
            param="messages",
            code="no_chat_template",
        )
    check_num_messages(len(asked.messages), state.max_positions)
    messages = [message.plain() for message in asked.messages]
    service = state.service(asked.service(), request, params.n)
    tokenizer = state.tokenizer
    admission = Admission(state, 1, params)
    try:
        await state.grammars.compile(params.grammar)
        text = await state.intake.render(request, tokenizer, messages)
        check_length(tokenizer, text, state.worker.max_prompt_tokens)
        prompt = await state.intake.tokenize(
            request, tokenizer, len(text), lambda wanted: tokenizer.encode(text)
        )
        return Answer(
            state,
            ChatFormat(),
            [Job(prompt, params, service)],
            admission=admission,
            stream=bool(asked.stream),
            usage=asked.includes_usage,
        )
    except BaseException:
        admission.close()
        raise


def check_num_messages(num_messages: int, max_positions: int) -> None:
    """Raises HttpError for more messages than the context has tokens: each takes some, so that they
    need not be rendered."""
    if num_messages > max_positions:
        raise HttpError(
            400,
            f"the conversation has {num_messages} messages, more than the {max_positions} tokens "
            "of the model's context; send the last of them",
            param="messages",
            code="invalid_value",
        )


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

    def choice_json(
        self, answer: WholeAnswer, rows: LogprobRows, parts: TokenParts
    ) -> Iterator[str]:
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        yield to_json({"message": message, "index": answer.number})[:-1] + ',"logprobs":'
        if answer.logprobs:
            yield '{"content":['
            for i in range(len(answer.logprobs)):
                yield ("," if i else "") + self._row_json(answer, i, rows, parts)
            yield '],"refusal":null}'
        else:
            yield "null"
        yield f',"finish_reason":{to_json(answer.finish_reason)}}}'

    def token_parts(self, text: str | bytes) -> Parts:
        before, after = to_json(_token(LogprobToken(text, 0.5))).rsplit('"logprob":0.5', 1)
        return before + '"logprob":', after

    def _row_json(
        self, answer: WholeAnswer, index: int, rows: LogprobRows, parts: TokenParts
    ) -> str:
        token_ids, logprobs = answer.logprobs.row(index)
        chosen_id = token_ids[0]
        own = parts.write(rows.place(chosen_id).text)
        told = []
        for token_id, logprob in zip(token_ids, logprobs, strict=True):
            before, after = own if token_id == chosen_id else parts[token_id]
            told.append(f"{before}{max(logprob, LOWEST_LOGPROB)!r}{after}")
        return f'{told[0][:-1]},"top_logprobs":[{",".join(told[1:])}]}}'

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
