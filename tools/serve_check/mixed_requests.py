"""The requests of the mixed load: what clients send on a good day and on a bad one."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tools.serve_check.exchange import Exchange, Reply, request

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# Answers that any request may get from a server that has much to do.
BUSY = frozenset({429})
WORDS = (
    *("evening", "rain", "a house", "the river", "late", "and then", "stones"),
    *("東京", "Zoë", "🦊", "<|end|>", "\u0000", "\"'", "\\"),
)
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True)
class MixedRequest:
    """`statuses` are the answers that are right for it besides `BUSY`; none where the client hangs
    up."""

    kind: str
    asked: Exchange
    statuses: frozenset[int]
    is_stream: bool = False

    def fault(self, reply: Reply) -> str | None:
        """Returns what is wrong with the answer."""
        if self.asked.hang_up_after is not None:
            return None
        if reply.status in BUSY:
            return None if "retry-after" in reply.headers else "429 without Retry-After"
        if reply.status not in self.statuses:
            return f"status {reply.status}: {reply.body[:200]!r}"
        if reply.status == 0:
            return None
        if not reply.is_whole:
            return "the answer was cut off"
        if self.is_stream and reply.status == 200 and not reply.is_finished_stream:
            return f"the stream has no end: {reply.body[-200:]!r}"
        return None


Maker = Callable[[random.Random], MixedRequest]


def mixed_requests(seed: int, num: int) -> Iterator[MixedRequest]:
    """Yields `num` requests, the same for a seed."""
    draw = random.Random(seed)
    makers, weights = zip(*_MAKERS.items(), strict=True)
    for maker in draw.choices(makers, weights, k=num):
        yield maker(draw)


def text_of(draw: random.Random, most: int = 10) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, most)))


def _sampling(draw: random.Random) -> dict[str, object]:
    every: dict[str, object] = {
        "max_tokens": draw.randint(1, 24),
        "temperature": draw.choice([0, 0.7, 1.0, 2.0]),
        "top_p": draw.choice([0.5, 0.9, 1.0]),
        "top_k": draw.choice([0, 1, 40]),
        "seed": draw.randint(0, 2**31),
        "n": draw.choice([1, 1, 1, 2, 4]),
        "stop": draw.choice([["."], [], ["\n", "the"]]),
        "presence_penalty": draw.choice([-1, 0, 1]),
        "repetition_penalty": draw.choice([0.9, 1.0, 1.3]),
    }
    return {name: every[name] for name in every if draw.random() < 0.5 or name == "max_tokens"}


def _completion(draw: random.Random) -> MixedRequest:
    prompt = draw.choice([text_of(draw), [text_of(draw), text_of(draw)], [5, 6, 7], [[5, 6], [7]]])
    body = {"prompt": prompt, "logprobs": draw.choice([None, 0, 5]), **_sampling(draw)}
    return _post("completion", COMPLETIONS, body, 200)


def _chat_body(draw: random.Random) -> dict[str, object]:
    messages = [{"role": "user", "content": text_of(draw)}]
    if draw.random() < 0.3:
        messages.insert(0, {"role": "system", "content": text_of(draw)})
    return {"messages": messages, **_sampling(draw)}


def _chat(draw: random.Random) -> MixedRequest:
    return _post("chat", CHAT, _chat_body(draw), 200)


def _stream(draw: random.Random) -> MixedRequest:
    body = {**_chat_body(draw), "stream": True, "stream_options": {"include_usage": True}}
    return _post("stream", CHAT, body, 200, is_stream=True)


def _disconnect(draw: random.Random) -> MixedRequest:
    """A client that hangs up: at once, after the head, or in the middle of a stream."""
    body = {
        "prompt": text_of(draw),
        "max_tokens": 200,
        "ignore_eos": True,
        "stream": draw.random() < 0.7,
    }
    asked = request("POST", COMPLETIONS, body)
    hang_up_after = draw.choice([0, 1, 400, 2000])
    if draw.random() < 0.2:
        # A request that is cut off is never answered.
        asked, hang_up_after = asked[: draw.randint(1, len(asked) - 1)], 0
    return MixedRequest(
        kind="disconnect",
        asked=Exchange(data=asked, hang_up_after=hang_up_after),
        statuses=frozenset(),
    )


def _tools(draw: random.Random) -> MixedRequest:
    choice = draw.choice(["auto", "none", "required", _named("add"), _named("missing")])
    body = {**_chat_body(draw), "tools": [TOOL], "tool_choice": choice, "max_tokens": 40}
    body["stream"] = draw.random() < 0.5
    return _post("tools", CHAT, body, 200, 400, is_stream=bool(body["stream"]))


def _named(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


def _schema(draw: random.Random) -> MixedRequest:
    strict = {"name": "person", "strict": True, "schema": draw.choice([SCHEMA, _deep(40)])}
    body = {
        **_chat_body(draw),
        "response_format": draw.choice(
            [{"type": "json_schema", "json_schema": strict}, {"type": "json_object"}]
        ),
        "max_tokens": 40,
    }
    return _post("schema", CHAT, body, 200, 400)


def _deep(depth: int) -> dict[str, object]:
    found: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}, "required": ["a"]}
    return found


def _wrong_field(draw: random.Random) -> MixedRequest:
    name, value = draw.choice(
        [
            ("temperature", -1),
            ("temperature", "1"),
            ("max_tokens", -1),
            ("max_tokens", 1e300),
            ("top_p", 2),
            ("n", 10_000),
            ("stop", ["x"] * 100),
            ("logit_bias", {"x": 1}),
            ("seed", 2**80),
            ("best_of", 7),
            ("no_such_field", 1),
            ("messages", []),
            ("messages", [{"role": "wizard", "content": "x"}]),
            ("stream_options", {"include_usage": True}),
            ("model", 5),
        ]
    )
    return _post("wrong field", CHAT, {**_chat_body(draw), name: value}, 400)


def _malformed(draw: random.Random) -> MixedRequest:
    good = json.dumps(_chat_body(draw)).encode()
    body = draw.choice(
        [
            good[: len(good) // 2],
            b"",
            b"null",
            b"[1, 2]",
            b"\xff\xfe" + good,
            b"[" * 50_000,
            b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
            b'{"prompt": ' + b"9" * 5_000 + b"}",
            good + b"}",
            b'{"messages": NaN}',
        ]
    )
    return _post("malformed", CHAT, body, 400)


def _odd_head(draw: random.Random) -> MixedRequest:
    body = _chat_body(draw)
    path, method, status, headers = draw.choice(
        [
            (CHAT, "POST", 415, {"Content_Type": "text/plain"}),
            (CHAT, "POST", 415, {"Content_Encoding": "gzip"}),
            (CHAT, "PUT", 405, {}),
            ("/v1/nothing", "POST", 404, {}),
            (CHAT, "POST", 413, {"Content_Length": "3000000"}),
            (CHAT, "POST", 403, {"Host": "evil.example"}),
            (CHAT, "POST", 403, {"Origin": "https://evil.example"}),
        ]
    )
    return MixedRequest(
        kind="odd head",
        asked=Exchange(data=request(method, path, body, **headers)),
        statuses=frozenset({status}),
    )


def _no_http(draw: random.Random) -> MixedRequest:
    """A client that speaks something else, or sends too long a head."""
    data, statuses = draw.choice(
        [
            (draw.randbytes(200) + b"\r\n\r\n", {0, 400}),
            (b"GET / HTTP/9.9\r\n\r\n", {0, 400, 403, 505}),
            (b"GET /health HTTP/1.1\r\n" + b"X: " + b"y" * 40_000 + b"\r\n\r\n", {0, 400, 431}),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100 + b"\r\n\r\n", {0, 400}),
        ]
    )
    return MixedRequest(kind="no HTTP", asked=Exchange(data=data), statuses=frozenset(statuses))


def _slow(draw: random.Random) -> MixedRequest:
    asked = Exchange(data=request("POST", CHAT, _chat_body(draw)), pause_s=0.3)
    return MixedRequest(kind="slow", asked=asked, statuses=frozenset({200}))


def _look(draw: random.Random) -> MixedRequest:
    path = draw.choice(["/health", "/metrics", "/v1/models", "/report", "/"])
    return MixedRequest(
        kind="look", asked=Exchange(data=request("GET", path)), statuses=frozenset({200})
    )


def _post(
    kind: str, path: str, body: object, *statuses: int, is_stream: bool = False
) -> MixedRequest:
    return MixedRequest(
        kind=kind,
        asked=Exchange(data=request("POST", path, body)),
        statuses=frozenset(statuses),
        is_stream=is_stream,
    )


_MAKERS: Mapping[Maker, int] = {
    _completion: 20,
    _chat: 20,
    _stream: 15,
    _disconnect: 10,
    _tools: 8,
    _schema: 6,
    _wrong_field: 6,
    _malformed: 5,
    _odd_head: 4,
    _no_http: 2,
    _slow: 1,
    _look: 3,
}
