"""S19: nobody learns from /metrics what others asked, nor from hits where prefixes are apart."""

import secrets

import pytest

from drivers.running_server import Running, running_server
from fakes.toy_executor import ToyExecutor, toy_spec

# The lengths of all prompts and answers together, which are the same whether one hits or not.
LENGTHS = (
    "prompt_tokens_total",
    "generated_tokens_total",
    "generation_tokens_total",
    "_length_tokens",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_max_num_generation_tokens",
)


def metrics(server: Running) -> str:
    """All of it but who runs at the moment, and how many and how long all were."""
    lines = server.client.get("/metrics").text.splitlines()
    left_out = ("requests_", "answers_total", "request_success", *LENGTHS)
    return "\n".join(line for line in lines if not any(name in line for name in left_out))


def lengths(server: Running) -> dict[str, float]:
    """The exact numbers of them."""
    lines = server.client.get("/metrics").text.splitlines()
    values = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in values if any(one in name for one in LENGTHS)}


def ask(server: Running, prompt: str, **fields) -> None:
    body = {"prompt": prompt, "max_tokens": 1, **fields}
    assert server.client.post("/v1/completions", json=body).status_code == 200


def hits(server: Running) -> int:
    return server.engine.scheduler.cache.stats.num_hits


def test_a_guess_that_hits_looks_like_one_that_does_not(monkeypatch):
    """The chance that one request shows is one in 64; here it is drawn to be none."""
    monkeypatch.setattr(secrets, "randbelow", lambda number: number - 1)
    executor = ToyExecutor(num_pages=1024, spec=toy_spec(max_positions=256))
    with running_server(executor=executor) as server:
        ask(server, "the secret of somebody else " * 5)
        before, num_hits, first = metrics(server), hits(server), lengths(server)
        ask(server, "the secret of nobody at all " * 5)
        missed, second = metrics(server), lengths(server)
        assert hits(server) == num_hits
        ask(server, "the secret of somebody else " * 5)
        assert hits(server) == num_hits + 1
        assert metrics(server) == missed == before
        third = lengths(server)
        assert {n: third[n] - second[n] for n in third} == {n: second[n] - first[n] for n in third}


def test_isolated_prefixes_are_found_by_their_own_tenant_alone():
    with running_server(isolates_prefixes=True) as server:
        prompt = "what everybody asks " * 5
        for fields, num_hits in (
            ({}, 0),
            ({}, 1),
            ({"user": "a"}, 1),
            ({"user": "a"}, 2),
            ({"user": "b"}, 2),
            ({"user": "b", "cache_salt": "a"}, 2),
            # Who names a salt shares with those who know it.
            ({"user": "c", "cache_salt": "a"}, 3),
        ):
            ask(server, prompt, **fields)
            assert hits(server) == num_hits, fields


@pytest.mark.parametrize("user", ["127.0.0.1", "127.0.0.1 ", "u" * 1024])
def test_nobody_names_himself_into_the_prefixes_of_another(user):
    with running_server(isolates_prefixes=True) as server:
        prompt = "what everybody asks " * 5
        ask(server, prompt)
        ask(server, prompt, user=user)
        ask(server, prompt, cache_salt=user)
        assert hits(server) == 0


def test_without_isolation_prefixes_are_shared():
    with running_server() as server:
        for user in ("a", "b"):
            ask(server, "what everybody asks " * 5, user=user)
        assert hits(server) == 1
