"""A prompt that cannot be served is not tokenized, nor is one that nobody waits for (S08)."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from drivers.running_server import SPEC, running_server
from fakes.toy_executor import ToyExecutor, ToyTokenizer
from paredown.engine.prompt import USUAL_MAX_TOKEN_BYTES
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.models.text.tokenizer import LONG_TEXT_CHARS
from paredown.serve.intake import side_thread

LONG = "x" * (2 * LONG_TEXT_CHARS)


class NotingTokenizer(ToyTokenizer):
    """Notes the lengths that it encodes, and waits for `may_go_on` in long ones."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded = list[int]()
        self.num_at_once = self.most_at_once = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def encode(self, text: str) -> list[int]:
        self.encoded.append(len(text))
        if len(text) < LONG_TEXT_CHARS:
            return super().encode(text)
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        assert self.may_go_on.wait(20)
        self.num_at_once -= 1
        return [1] * 300


class BoundedTokenizer(NotingTokenizer):
    max_token_bytes = 3


def complete(server, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 1, **fields}
    return server.client.post("/v1/completions", json=body)


def send(server, prompt: str) -> socket.socket:
    """The connection that waits for an answer."""
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"prompt": prompt, "max_tokens": 1}).encode()
    one = socket.create_connection((host, int(port)), timeout=10)
    one.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )
    return one


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_that_no_tokens_can_hold_is_not_tokenized(stream):
    tokenizer = BoundedTokenizer()
    too_long = "x" * (3 * (SPEC.max_positions - 1) + 1)
    with running_server(tokenizer=tokenizer) as server:
        for prompt in (too_long, "é" * (len(too_long) // 2 + 1), ["fine", too_long], LONG):
            reply = complete(server, prompt, stream=stream)
            assert reply.status_code == 400
            assert "longer than any prompt" in reply.json()["error"]["message"]
        message = {"role": "user", "content": too_long}
        chat = {"messages": [message], "max_tokens": 1, "stream": stream}
        assert server.client.post("/v1/chat/completions", json=chat).status_code == 400
        assert not tokenizer.encoded
        # One that may fit is looked at.
        assert complete(server, too_long[1:]).status_code == 400
        assert tokenizer.encoded == [len(too_long) - 1]
        assert server.worker.num_open_answers == 0


def test_a_tokenizer_of_an_unknown_bound_is_given_no_endless_text():
    tokenizer = NotingTokenizer()
    assert tokenizer.max_token_bytes is None
    too_long = " " * (USUAL_MAX_TOKEN_BYTES * SPEC.max_positions)
    with running_server(tokenizer=tokenizer) as server:
        reply = complete(server, too_long)
        assert reply.status_code == 400
        assert "longer than any prompt" in reply.json()["error"]["message"]
    assert not tokenizer.encoded


class NotingTemplate(ToyTokenizer):
    """Notes how many messages it renders, and how many conversations at once."""

    def __init__(self) -> None:
        super().__init__()
        self.rendered = list[int]()
        self.num_at_once = self.most_at_once = 0

    def render_chat(self, messages, tools=None, *, template_values=None):
        self.rendered.append(len(messages))
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        time.sleep(0.02)
        self.num_at_once -= 1
        return "x"


def chat(url: str, num_messages: int) -> httpx.Response:
    message = {"role": "user", "content": ""}
    body = {"messages": [message] * num_messages, "max_tokens": 1}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=20)


def test_more_messages_than_the_context_has_tokens_are_not_rendered():
    tokenizer = NotingTemplate()
    with running_server(tokenizer=tokenizer) as server:
        reply = chat(server.url, SPEC.max_positions + 1)
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "messages"
        assert not tokenizer.rendered
        assert chat(server.url, SPEC.max_positions).status_code == 200
        assert tokenizer.rendered == [SPEC.max_positions]
        assert server.worker.num_open_answers == 0


def test_long_conversations_are_rendered_one_at_a_time():
    tokenizer = NotingTemplate()
    with running_server(tokenizer=tokenizer) as server, ThreadPoolExecutor(8) as clients:
        replies = list(clients.map(partial(chat, server.url), [SPEC.max_positions] * 16))
    assert [reply.status_code for reply in replies] == [200] * 16
    assert tokenizer.most_at_once == 1


def test_one_prompt_too_long_ends_the_work_for_the_others():
    tokenizer = NotingTokenizer()
    with running_server(tokenizer=tokenizer) as server:
        assert complete(server, ["x" * 300, "y" * 300, "z" * 300]).status_code == 400
    assert tokenizer.encoded == [300]


def test_token_ids_too_many_never_reach_the_engine(monkeypatch):
    with running_server() as server:
        monkeypatch.setattr(server.engine, "check", None)
        reply = complete(server, [[1] * SPEC.max_positions])
        assert reply.status_code == 400
        assert "256 prompt tokens" in reply.json()["error"]["message"]


def test_a_full_queue_is_said_before_anything_is_tokenized():
    tokenizer = NotingTokenizer()
    executor = ToyExecutor(num_pages=128, spec=SPEC, delay_s=0.02)
    config = ScheduleConfig(max_running=1, max_waiting=2)
    with running_server(executor=executor, tokenizer=tokenizer, config=config) as server:
        body = {"prompt": "x", "n": 2, "max_tokens": 200, "ignore_eos": True, "stream": True}
        with server.client.stream("POST", "/v1/completions", json=body) as running:
            lines = running.iter_lines()
            next(lines)
            tokenizer.encoded.clear()
            for prompt in ("short", LONG):
                with httpx.Client(base_url=server.url) as client:
                    fields = {"prompt": prompt, "n": 2, "max_tokens": 1}
                    reply = client.post("/v1/completions", json=fields)
                assert reply.status_code == 429, reply.text
                assert reply.headers["Retry-After"] == "1"
            assert not tokenizer.encoded


def test_long_texts_are_tokenized_one_at_a_time_and_not_for_clients_who_left():
    tokenizer = NotingTokenizer()
    tokenizer.may_go_on.clear()
    with running_server(tokenizer=tokenizer) as server:
        clients = [send(server, LONG + "x" * number) for number in range(12)]
        waiting = server.state.intake.tokenizing
        server.wait_until(lambda: waiting.num_waiting == 11)
        for one in clients:
            one.close()
        server.wait_until(lambda: not (waiting.num_waiting or server.worker.num_open_answers))
        tokenizer.may_go_on.set()
        assert complete(server, "x").status_code == 200
        # Another long one comes after the one that was under way, and not after eleven others.
        assert complete(server, LONG + "y" * 100).status_code == 400
    assert len([num for num in tokenizer.encoded if num >= LONG_TEXT_CHARS]) == 2
    assert tokenizer.most_at_once == 1


def test_nothing_more_is_tokenized_of_a_request_whose_client_left():
    tokenizer = NotingTokenizer()
    tokenizer.may_go_on.clear()
    with running_server(tokenizer=tokenizer) as server:
        with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.3) as client:
            client.post(f"{server.url}/v1/completions", json={"prompt": [LONG] * 4})
        server.wait_until(lambda: not server.worker.num_open_answers)
        tokenizer.encoded.clear()
        tokenizer.may_go_on.set()
        assert complete(server, LONG).status_code == 400
        assert tokenizer.encoded == [len(LONG)]


def test_more_than_may_wait_are_told_to_come_again(monkeypatch):
    monkeypatch.setattr(side_thread, "MAX_WAITING", 2)
    tokenizer = NotingTokenizer()
    tokenizer.may_go_on.clear()
    statuses = list[int]()
    with running_server(tokenizer=tokenizer) as server:

        def ask() -> None:
            body = {"prompt": LONG, "max_tokens": 1}
            statuses.append(httpx.post(f"{server.url}/v1/completions", json=body).status_code)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for one in threads:
            one.start()
        server.wait_until(lambda: statuses.count(429) == 3)
        tokenizer.may_go_on.set()
        for one in threads:
            one.join()
        assert sorted(statuses) == [400] * 3 + [429] * 3
