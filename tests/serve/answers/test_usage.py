"""Counts and times of a request, and what they do not tell of others."""

import json

import pytest

from drivers.running_server import running_server
from paredown.engine.request import Request
from paredown.engine.request_output import RequestOutput
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.session import Job
from paredown.serve.answers.usage import Usage, UsageDetails

PROMPT = "what everybody asks " * 5


def ended(**fields) -> RequestOutput:
    times = {"arrival_s": 10.0, "first_step_s": 10.5, "first_token_s": 11.5, "finish_s": 15.5}
    request = Request(
        id=0, params=SamplingParams(), num_prompt_tokens=2, token_ids=[1, 2], max_total_tokens=9,
        **times | fields,
    )  # fmt: skip
    return RequestOutput(request, "", [7, 8, 9, 10], finish_reason="stop")


def counted(details: UsageDetails, *outputs: RequestOutput, n: int = 1) -> Usage:
    usage = Usage.of([Job([1] * 10, SamplingParams(n=n))], details)
    for number, output in enumerate(outputs):
        usage.add(number, output)
    return usage


def test_details_are_told_only_where_they_may_be():
    output = ended(num_cached_tokens=8, num_drafted_tokens=5, num_accepted_tokens=3)
    plain = counted(UsageDetails(), output)
    assert plain.body() == {
        "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14,
        "completion_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    usage = counted(UsageDetails(tells_prefixes=True, tells_drafts=True), output)
    assert usage.body()["prompt_tokens_details"] == {"cached_tokens": 8}
    usage.num_reasoning_tokens = 2
    assert usage.body()["completion_tokens_details"] == {
        "reasoning_tokens": 2,
        "accepted_prediction_tokens": 3,
        "rejected_prediction_tokens": 2,
    }
    assert usage.response_body()["input_tokens_details"]["cached_tokens"] == 8
    message = usage.message_body()
    assert (message["input_tokens"], message["cache_read_input_tokens"]) == (2, 8)


def test_a_prompt_counts_once_however_many_answers_it_has():
    """Later answers find the whole prompt in the first one's pages."""
    first, second = ended(num_cached_tokens=0), ended(num_cached_tokens=10)
    usage = counted(UsageDetails(tells_prefixes=True), first, second, n=2)
    assert usage.body()["prompt_tokens"] == 10
    assert usage.body()["prompt_tokens_details"] == {"cached_tokens": 0}


def test_times_are_those_of_queue_prompt_and_answer():
    details = UsageDetails(tells_prefixes=True)
    assert counted(details, ended(num_cached_tokens=8)).timings() == {
        "cache_n": 8, "queue_ms": 500.0,
        "prompt_n": 2, "prompt_ms": 1000.0, "prompt_per_token_ms": 500.0, "prompt_per_second": 2.0,
        "predicted_n": 4, "predicted_ms": 4000.0, "predicted_per_token_ms": 1000.0,
        "predicted_per_second": 1.0,
    }  # fmt: skip


def test_where_prefixes_are_shared_the_prompts_time_has_the_queue_in_it():
    timings = counted(UsageDetails(), ended(num_cached_tokens=8)).timings()
    assert timings["prompt_n"] == 10
    assert timings["prompt_ms"] == 1500.0
    assert not {"cache_n", "queue_ms"} & timings.keys()


def ask(server, **fields) -> dict:
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "ignore_eos": True, **fields}
    reply = server.client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_server_tells_cached_tokens_of_the_caller_alone():
    with running_server() as server:
        for _ in range(2):
            assert "prompt_tokens_details" not in ask(server)["usage"]
    with running_server(isolates_prefixes=True) as server:
        numbers = [
            ask(server, user=user)["usage"]["prompt_tokens_details"]["cached_tokens"]
            for user in ("a", "a", "b")
        ]
        assert numbers == [0, (len(PROMPT) - 1) // 16 * 16, 0]


@pytest.mark.parametrize("stream", [False, True])
def test_timings_come_with_whom_they_were_asked_of(stream):
    def timings(server, **fields) -> dict | None:
        if not stream:
            return ask(server, **fields).get("timings")
        body = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "stream": True, **fields}
        lines = server.client.post("/v1/completions", json=body).text.splitlines()
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert not any("timings" in one for one in chunks[:-1])
        return chunks[-1].get("timings")

    with running_server() as server:
        assert timings(server) is None
        found = timings(server, timings=True)
        assert (found["prompt_n"], found["predicted_n"]) == (len(PROMPT), 8)
        assert found["predicted_per_second"] > 0
    with running_server(tells_timings=True) as server:
        assert timings(server) is not None
        options = {"stream_options": {"include_usage": True}} if stream else {}
        assert timings(server, **options) is not None
