"""ChatFormat: a choice of a chat. A whole reply has a message per choice, a stream a role and then
deltas."""

import secrets
from collections.abc import Iterator, Sequence

from paredown.models.chat.turn_event import (
    CallArguments,
    CallStart,
    Content,
    Reasoning,
    TurnEvent,
)
from paredown.serve.answers.json_stream import to_json
from paredown.serve.answers.logprobs import LOWEST_LOGPROB, LogprobRows, LogprobToken
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.token_parts import Parts, TokenParts
from paredown.serve.answers.turn import Turn
from paredown.serve.answers.usage import Body
from paredown.serve.answers.whole_answer import WholeAnswer


class ChatFormat:
    """Log-probabilities are those of all tokens of an answer, in their order, also of those that
    reasoning and calls are made of."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self) -> None:
        # Calls of one request have ids that begin alike.
        self._call_stem = f"call_{secrets.token_hex(10)}"

    def opening(self, number: int) -> Body | None:
        delta = {"role": "assistant", "content": None}
        return {"index": number, "delta": delta, "logprobs": None, "finish_reason": None}

    def chunk_choices(self, piece: Piece) -> Iterator[Body]:
        rows: list[Body] = [
            {**told_token(row.chosen), "top_logprobs": [told_token(one) for one in row.top]}
            for row in piece.logprobs
        ]
        yield {
            "delta": self._delta(piece.number, piece.events),
            "index": piece.number,
            "logprobs": {"content": rows, "refusal": None} if rows else None,
            "finish_reason": piece.finish_reason,
        }

    def choice_json(
        self, answer: WholeAnswer, rows: LogprobRows, parts: TokenParts
    ) -> Iterator[str]:
        message = self._message(answer.number, answer.turn)
        yield to_json({"message": message, "index": answer.number})[:-1] + ',"logprobs":'
        if answer.logprobs:
            yield '{"content":['
            for i in range(len(answer.logprobs)):
                yield ("," if i else "") + _row_json(answer, i, rows, parts)
            yield '],"refusal":null}'
        else:
            yield "null"
        yield f',"finish_reason":{to_json(answer.finish_reason)}}}'

    def token_parts(self, text: str | bytes) -> Parts:
        before, after = to_json(told_token(LogprobToken(text, 0.5))).rsplit('"logprob":0.5', 1)
        return before + '"logprob":', after

    def _message(self, number: int, turn: Turn) -> Body:
        content = turn.content
        message: Body = {
            "role": "assistant",
            "content": None if turn.calls and not content else content,
            "refusal": None,
        }
        if reasoning := turn.reasoning:
            message |= {"reasoning_content": reasoning, "reasoning": reasoning}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": self._call_id(number, call.index),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.text},
                }
                for call in turn.calls
            ]
        return message

    def _delta(self, number: int, events: Sequence[TurnEvent]) -> Body:
        """Returns what the events add to a message. Within a piece the order of text, reasoning and
        calls does not matter: each has a place of its own in a message."""
        delta: Body = {}
        content = "".join(one.text for one in events if isinstance(one, Content))
        if content:
            delta["content"] = content
        if len(events) == bool(content):
            return delta
        reasoning = "".join(one.text for one in events if isinstance(one, Reasoning))
        if reasoning:
            delta |= {"reasoning_content": reasoning, "reasoning": reasoning}
        calls: dict[int, Body] = {}
        for event in events:
            if isinstance(event, CallStart):
                calls[event.index] = {
                    "index": event.index,
                    "id": self._call_id(number, event.index),
                    "type": "function",
                    "function": {"name": event.name, "arguments": ""},
                }
            elif isinstance(event, CallArguments):
                blank: Body = {"index": event.index, "function": {"arguments": ""}}
                function = calls.setdefault(event.index, blank)["function"]
                assert isinstance(function, dict)
                function["arguments"] += event.text
        if calls:
            delta["tool_calls"] = list(calls.values())
        return delta

    def _call_id(self, number: int, index: int) -> str:
        return f"{self._call_stem}{number:02x}{index:02x}"


def told_token(one: LogprobToken) -> Body:
    """Returns a token as clients read it. The bytes of an answer's tokens, one after the other, are
    those of its text; "token" has U+FFFD for what is not a whole character."""
    data = one.data
    return {"token": data.decode(errors="replace"), "logprob": one.logprob, "bytes": list(data)}


def _row_json(answer: WholeAnswer, index: int, rows: LogprobRows, parts: TokenParts) -> str:
    token_ids, logprobs = answer.logprobs.row(index)
    chosen_id = token_ids[0]
    own = parts.write(rows.place(chosen_id).text)
    told = []
    for token_id, logprob in zip(token_ids, logprobs, strict=True):
        before, after = own if token_id == chosen_id else parts[token_id]
        told.append(f"{before}{max(logprob, LOWEST_LOGPROB)!r}{after}")
    return f'{told[0][:-1]},"top_logprobs":[{",".join(told[1:])}]}}'
