"""Clients of all kinds in small: the toy server answers each request as it should, and the checks
see where it does not. `make serve-check` does the same for longer with a real model."""

import asyncio
from collections import Counter

import pytest
from tools.serve_check.exchange import Exchange, Reply, exchange, request
from tools.serve_check.finding import Finding
from tools.serve_check.mixed_requests import CHAT, MixedRequest, mixed_requests
from tools.serve_check.schema_check import run_schemathesis

from drivers.running_server import Running, running_server

NUM_REQUESTS, NUM_CLIENTS = 500, 16
NUM_EXAMPLES = 30


async def send_all(port: int, asked: list[MixedRequest]) -> list[Reply]:
    places = asyncio.Semaphore(NUM_CLIENTS)

    async def send(one: MixedRequest) -> Reply:
        async with places:
            return await exchange(port, one.asked)

    return await asyncio.gather(*map(send, asked))


def port_of(server: Running) -> int:
    return int(server.url.rsplit(":", 1)[1])


def test_mixed_requests_are_all_answered_and_leave_nothing_behind():
    asked = list(mixed_requests(seed=1, num=NUM_REQUESTS))
    body = {"prompt": "x", "max_tokens": 20, "seed": 3, "logprobs": 3}
    with running_server(page=True) as server:
        before = server.client.post("/v1/completions", json=body).json()["choices"]
        replies = asyncio.run(send_all(port_of(server), asked))
        faults = [
            f"{one.kind}: {fault}"
            for one, reply in zip(asked, replies, strict=True)
            if (fault := one.fault(reply)) is not None
        ]
        assert not faults
        server.wait_until(lambda: server.is_empty and not server.worker.num_open_answers)
        assert server.client.post("/v1/completions", json=body).json()["choices"] == before
    kinds = Counter(one.kind for one in asked)
    assert len(kinds) == 12
    assert min(kinds.values()) >= 3


def test_the_api_keeps_to_its_own_document():
    """The phase with every limit of every field takes minutes, and is left to the longer check."""
    with running_server() as server:
        num_requests, faults = run_schemathesis(
            server.url, num_examples=NUM_EXAMPLES, seed=1, phases=("fuzzing", "stateful")
        )
    assert not faults
    assert num_requests > 400


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (Reply(status=500, headers={}, body=b"oh", is_whole=True), "status 500: b'oh'"),
        (Reply(status=429, headers={}, body=b"", is_whole=True), "429 without Retry-After"),
        (Reply(status=429, headers={"retry-after": "1"}, body=b"", is_whole=True), None),
        (Reply(status=200, headers={}, body=b"{", is_whole=False), "the answer was cut off"),
        (
            Reply(status=200, headers={}, body=b"data: 1\n\n", is_whole=True),
            "the stream has no end",
        ),
        (Reply(status=200, headers={}, body=b"data: [DONE]\n\n", is_whole=True), None),
        (Reply(status=0, headers={}, body=b"", is_whole=False), "status 0"),
    ],
)
def test_what_is_wrong_with_an_answer_is_told(reply, fault):
    asked = MixedRequest(
        kind="stream",
        asked=Exchange(data=request("POST", CHAT, {})),
        statuses=frozenset({200}),
        is_stream=True,
    )
    found = asked.fault(reply)
    assert found is None if fault is None else found.startswith(fault)


def test_the_same_seed_gives_the_same_requests():
    assert list(mixed_requests(7, 50)) == list(mixed_requests(7, 50))
    assert list(mixed_requests(7, 50)) != list(mixed_requests(8, 50))


def test_a_finding_tells_its_figures_and_each_fault():
    good = Finding(check="streams", figures={"answered": 3})
    bad = Finding(check="page", faults=("one", "two"))
    assert good.lines() == ["ok     streams: answered 3"]
    assert bad.lines() == ["FAULT  page: ", "       one", "       two"]
