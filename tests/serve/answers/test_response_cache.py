"""Answers that are kept: the same bytes again, for the same client and the same request alone."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.running_server import running_server
from fakes.toy_executor import ToyExecutor
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.service import Service
from paredown.engine.session import Job
from paredown.errors import ConfigError
from paredown.serve.answers.response_cache import (
    MAX_SHARE,
    KeptAnswer,
    ResponseCache,
    request_key,
)

BODY = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 12, "logprobs": 2}


def ask(server, path="completions", **fields):
    reply = server.client.post(f"/v1/{path}", json=BODY | fields)
    assert reply.status_code == 200, reply.text
    return reply


def told(reply) -> str:
    return reply.headers["x-response-cache"]


def same(reply) -> dict:
    body = reply.json()
    return {name: body[name] for name in ("object", "model", "choices")}


@pytest.fixture
def server():
    with running_server(response_cache=ResponseCache(1_000_000)) as running:
        yield running


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 3, "seed": 5, "temperature": 1.0},
        {"echo": True, "prompt_logprobs": 2},
        {"echo": True, "max_tokens": 0},
        {"prompt": ["a", "b"]},
    ],
)
def test_the_same_request_has_the_same_answer_without_a_step(server, fields):
    first = ask(server, **fields)
    num_steps = server.engine.executor.num_steps
    second = ask(server, **fields)
    assert [told(first), told(second)] == ["miss", "hit"]
    assert same(first) == same(second)
    assert server.engine.executor.num_steps == num_steps
    usage = second.json()["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": usage["prompt_tokens"]}
    assert usage["completion_tokens"] == first.json()["usage"]["completion_tokens"]
    assert first.json()["id"] != second.json()["id"]
    server.wait_until(lambda: server.worker.num_open_answers == 0)


def test_streams_and_whole_replies_share_an_answer(server):
    whole = ask(server).json()["choices"][0]
    reply = ask(server, stream=True)
    assert told(reply) == "hit"
    lines = [line[6:] for line in reply.text.splitlines() if line.startswith("data: {")]
    (choice,) = [json.loads(line)["choices"][0] for line in lines]
    assert choice == whole


def test_a_stream_is_kept_as_well(server):
    assert told(ask(server, stream=True)) == "miss"
    assert told(ask(server)) == "hit"


def test_chance_is_never_kept(server):
    for _ in range(2):
        assert told(ask(server, temperature=1.0)) == "none"
    assert server.state.response_cache.num_kept == 0


def test_chats_are_kept(server):
    fields = {"messages": [{"role": "user", "content": "x"}], "temperature": 0, "max_tokens": 5}
    replies = [server.client.post("/v1/chat/completions", json=fields) for _ in range(2)]
    assert list(map(told, replies)) == ["miss", "hit"]
    assert same(replies[0]) == same(replies[1])


@pytest.mark.parametrize(
    "other",
    [
        {"user": "b"},
        {"cache_salt": "b"},
        {"seed": 1},
        {"max_tokens": 13},
        {"prompt": "Once upon a tim"},
        {"logprobs": 3},
        {"logit_bias": {"5": 1}},
        {"stop": "q"},
    ],
)
def test_another_client_or_request_computes_its_own(server, other):
    ask(server, user="a")
    assert told(ask(server, **{"user": "a", **other})) == "miss"


def test_failed_and_cancelled_answers_are_not_kept():
    executor = ToyExecutor(num_pages=128, failing_steps=frozenset({3}))
    cache = ResponseCache(1_000_000)
    with running_server(executor=executor, response_cache=cache) as server:
        assert server.client.post("/v1/completions", json=BODY).status_code == 500
        assert cache.num_kept == 0
        assert told(ask(server)) == "miss"


def test_without_a_cache_nothing_is_told():
    with running_server() as server:
        assert "x-response-cache" not in ask(server).headers


def test_metrics_tell_hits_and_requests():
    cache = ResponseCache(1_000_000)
    with running_server(response_cache=cache, shows_exact_metrics=True) as server:
        for temperature in (0, 0, 1.0, 0):
            ask(server, temperature=temperature)
        lines = server.client.get("/metrics").text.splitlines()
        assert "paredown_response_cache_requests_total 4.0" in lines
        assert "paredown_response_cache_hits_total 2.0" in lines
        assert f"paredown_response_cache_bytes {float(cache.num_bytes)}" in lines


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3_000)), max_size=60))
def test_memory_is_bounded_and_the_least_recently_asked_go(asked):
    cache, recent = ResponseCache(20_000), list[int]()
    for number, size in asked:
        jobs = [Job([number], SamplingParams(temperature=0))]
        key, found = cache.find(jobs, "a")
        assert (found is not None) == (number in recent)
        if found is None:
            answers = [KeptAnswer(text="x" * size, finish_reason="stop")]
            cache.keep(key, answers)
        recent = [one for one in recent if one != number] + [number]
        assert cache.num_bytes <= cache.max_bytes
        kept = sum(1 for _ in range(cache.num_kept))
        recent = recent[-kept:] if kept else []


def test_an_answer_that_takes_too_large_a_share_is_not_kept():
    cache = ResponseCache(40_000)
    cache.keep(b"a", [KeptAnswer(text="x" * (40_000 // MAX_SHARE))])
    assert cache.num_kept == cache.num_bytes == 0


def test_keys_differ_wherever_anything_does():
    def key(token_ids=(1, 2), caller="key a", tenant="a", salt="", **params) -> bytes:
        service = Service(tenant=tenant, cache_salt=salt)
        job = Job(list(token_ids), SamplingParams(**{"temperature": 0, **params}), service)
        return request_key([job], caller)

    keys = [
        key(),
        key((2, 1)),
        key(caller="key b"),
        key(tenant="b"),
        key(salt="b"),
        key(n=2),
        key(bad_words=((1,),)),
        key(stop=("a",)),
        key(stop=("a", "b")),
        key(stop=("ab",)),
        key(logit_bias={1: 2.0}),
    ]
    assert len(set(keys)) == len(keys)
    assert key(logit_bias={1: 2.0, 3: 4.0}) == key(logit_bias={3: 4.0, 1: 2.0})
    # Two jobs are not one of both.
    one, two = Job([1], SamplingParams(seed=1)), Job([2], SamplingParams(seed=1))
    others = (request_key([two, one], "a"), request_key([one], "a"))
    assert request_key([one, two], "a") not in others


def test_a_cache_holds_something():
    with pytest.raises(ConfigError):
        ResponseCache(0)
