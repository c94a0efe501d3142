"""Long answers are written in pieces, and what they may come to is bounded when they are admitted
(S16)."""

import re

import pytest

from drivers.loop_turns import watched_turns
from drivers.running_server import NUM_PAGES, SPEC, running_server
from fakes.toy_executor import ToyExecutor
from paredown.serve.answers import answer
from paredown.serve.intake import admission, intake
from paredown.serve.intake.intake import MAX_LOGPROBS

MANY = {
    "prompt": ["x"] * 64,
    "n": 2,
    "max_tokens": 100,
    "ignore_eos": True,
    "logprobs": 20,
    "temperature": 0,
    "min_tokens": 100,
}
COMPLETION = {"prompt": ["ab", "c"], "n": 2, "max_tokens": 30, "logprobs": 20, "seed": 3}
CHAT = {
    "messages": [{"role": "user", "content": "x"}],
    "n": 3,
    "max_tokens": 30,
    "logprobs": True,
    "top_logprobs": 20,
    "seed": 3,
}


def test_no_turn_of_the_loop_is_long_while_a_long_answer_is_written():
    """It has 268,800 log-probabilities."""
    with running_server() as server, watched_turns() as taken_s:
        reply = server.client.post("/v1/completions", json=MANY, timeout=120)
        choices = reply.json()["choices"]
        assert [len(one["logprobs"]["tokens"]) for one in choices] == [100] * 128
        server.wait_until(lambda: server.is_empty)
        assert server.state.intake.logprobs.num_held == 0
    assert max(taken_s) < 0.1


def test_no_turn_of_the_loop_is_long_while_it_is_streamed():
    with running_server() as server, watched_turns() as taken_s:
        body = {**MANY, "stream": True}
        with server.client.stream("POST", "/v1/completions", json=body, timeout=120) as reply:
            assert list(reply.iter_lines())[-2] == "data: [DONE]"
    assert max(taken_s) < 0.1


@pytest.mark.parametrize(
    ("path", "body"), [("completions", COMPLETION), ("chat/completions", CHAT)]
)
@pytest.mark.parametrize("is_plain", [False, True])
def test_in_pieces_it_is_the_same_to_the_byte(monkeypatch, path, body, is_plain):
    if is_plain:
        body = {name: value for name, value in body.items() if "logprobs" not in name}
    told = []
    with running_server() as server:
        for most in (10**9, -1):
            monkeypatch.setattr(answer, "MAX_INLINE_LOGPROBS", most)
            reply = server.client.post(f"/v1/{path}", json=body)
            assert reply.status_code == 200
            assert reply.headers["Content-Type"] == "application/json"
            assert ("Content-Length" in reply.headers) == (most > 0)
            told.append(re.sub(rb'"(id|created)":[^,]*', b"", reply.content))
    assert told[0] == told[1]


def test_more_log_probabilities_than_may_be_held_are_refused(monkeypatch):
    with running_server() as server:
        monkeypatch.setattr(admission, "MAX_LOGPROBS", 64 * 256 * 3 - 1)
        body = {**MANY, "n": 1, "logprobs": 2, "max_tokens": 300}
        reply = server.client.post("/v1/completions", json=body)
        assert reply.status_code == 400
        assert "64 answers x 256 tokens x 3 log-probabilities" in reply.json()["error"]["message"]
        assert reply.json()["error"]["param"] == "logprobs"
        assert server.worker.num_open_answers == 0


def test_what_others_hold_is_said_and_comes_back(monkeypatch):
    monkeypatch.setattr(intake, "MAX_LOGPROBS", 1000)
    body = {"prompt": "x", "max_tokens": 100, "logprobs": 8, "ignore_eos": True, "stream": True}
    slow = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, delay_s=0.01)
    with running_server(executor=slow) as server:
        with server.client.stream("POST", "/v1/completions", json=body) as running:
            lines = running.iter_lines()
            next(lines)
            reply = server.client.post("/v1/completions", json={**body, "stream": False})
            assert reply.status_code == 429
            assert reply.headers["Retry-After"] == "1"
            list(lines)
        server.wait_until(lambda: not server.state.intake.logprobs.num_held)
        assert server.client.post("/v1/completions", json=body).status_code == 200
        server.wait_until(lambda: not server.worker.num_open_answers)


def test_usual_answers_are_far_below_it():
    assert MAX_LOGPROBS > 64 * 2 * 400 * 21 * 10
