"""S19: who has no key uses nothing, learns nothing, and leaves no key behind."""

import http.client
import logging

import httpx
import pytest

from drivers.encoder_server import encoder_server
from drivers.running_server import running_server
from paredown.serve.app import OPEN_PATHS
from paredown.serve.doors.key_ring import KeyRing
from paredown.serve.endpoint_table import ENDPOINTS
from paredown.serve.watch.request_log import RequestLog

ALICE, BOB = "alices-key-0123456789", "bobs-key-0123456789"
BODY = {"model": "toy", "prompt": "x" * 64, "max_tokens": 3, "seed": 1}


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "keys.txt"
    found.write_text(f"alice: {ALICE}\nbob: {BOB}\n")
    return found


@pytest.fixture
def lines():
    return []


@pytest.fixture
def server(path, lines):
    log = RequestLog("json", lines.append)
    with running_server(keys=KeyRing(path), log=log) as running:
        yield running


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def test_every_route_but_open_ones_wants_a_key(server):
    assert {"/health", "/ready"} <= OPEN_PATHS
    for one in ENDPOINTS:
        reply = server.client.request(one.method, one.told_path.replace("{name}", "toy"))
        assert (reply.status_code == 401) == (not one.is_open), one.path
    for path in ("/nothing", "/health/", "//health", "/health%0a", "/v1/../health", "/HEALTH"):
        # httpx would write the path in another way.
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
        connection.request("GET", path)
        assert connection.getresponse().status == 401
        connection.close()
    for method in ("HEAD", "PUT", "DELETE", "OPTIONS"):
        assert server.client.request(method, "/v1/models").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        bearer("wrong-key-0123456789"),
        bearer(ALICE[:-1]),
        bearer(ALICE + "x"),
        bearer(ALICE.upper()),
        {"Authorization": ALICE},
        {"Authorization": f"Basic {ALICE}"},
        {"Authorization": f"Token {ALICE}"},
        {"x-api-key": "wrong-key-0123456789"},
        {"api-key": ALICE},
        {"Cookie": f"key={ALICE}"},
        {"Authorization": "Bearer " + "x" * 10_000},
    ],
    ids=str,
)
def test_without_a_valid_key_the_answer_is_401_in_openais_form(server, headers):
    reply = server.client.post("/v1/completions", json=BODY, headers=headers)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")
    error = reply.json()["error"]
    assert error["type"] == "authentication_error"
    assert error["code"] in ("missing_api_key", "invalid_api_key")
    assert "Bearer KEY" in error["message"]
    assert "key-0123456789" not in reply.text
    assert len(reply.content) < 1000
    assert not server.engine.scheduler.num_unfinished


def test_without_a_key_messages_answer_in_their_own_form(server):
    reply = server.client.post("/v1/messages", json=BODY)
    assert reply.status_code == 401
    told = reply.json()
    assert (told["type"], told["error"]["type"]) == ("error", "authentication_error")


def test_a_stored_response_is_found_with_its_own_key_alone(server):
    body = {"input": "x", "max_output_tokens": 2}
    stored = server.client.post("/v1/responses", json=body, headers=bearer(ALICE)).json()
    path = f"/v1/responses/{stored['id']}"
    after = {**body, "previous_response_id": stored["id"]}
    for key, status in ((BOB, 404), (ALICE, 200)):
        assert server.client.get(path, headers=bearer(key)).status_code == status
        reply = server.client.post("/v1/responses", json=after, headers=bearer(key))
        assert reply.status_code == status
    assert server.client.delete(path, headers=bearer(BOB)).status_code == 404
    assert server.client.delete(path, headers=bearer(ALICE)).status_code == 200


def test_a_key_comes_in_either_header(server):
    for headers in (
        bearer(ALICE),
        {"Authorization": f"bEARER  {ALICE}"},
        {"x-api-key": ALICE},
        {"Authorization": "Basic abc", "X-API-Key": BOB},
    ):
        reply = server.client.post("/v1/completions", json=BODY, headers=headers)
        assert reply.status_code == 200


def test_a_key_in_a_url_is_not_taken_and_not_logged(server, lines):
    for name in ("api_key", "key", "access_token"):
        reply = server.client.post(f"/v1/completions?{name}={ALICE}", json=BODY)
        assert reply.status_code == 401
        assert "replace the key" in reply.json()["error"]["message"]
    reply = server.client.post(f"/v1/completions?api_key={ALICE}", json=BODY, headers=bearer(BOB))
    assert reply.status_code == 200
    server.wait_until(lambda: len(lines) == 4)
    assert ALICE not in "".join(lines)


def test_a_body_is_not_read_before_the_key(server):
    """A client without one can keep nothing busy: its body may be of any length."""
    reply = server.client.post("/v1/completions", content=b"[" * 3_000_000)
    assert reply.status_code == 401


def test_a_key_that_is_taken_back_is_worth_nothing_on_connections_that_are_open(server, path):
    with httpx.Client(base_url=server.url, headers=bearer(ALICE)) as client:
        assert client.get("/v1/models").status_code == 200
        path.write_text(f"bob: {BOB}\n")
        server.wait_until(lambda: client.get("/v1/models").status_code == 401)
        assert client.get("/v1/models", headers=bearer(BOB)).status_code == 200


def test_a_tenant_is_the_name_of_the_key(server):
    tenants = []
    submit = server.worker.submit
    server.worker.submit = lambda session, jobs: (
        tenants.append(jobs[0].service.tenant),
        submit(session, jobs),
    )
    for key, user in ((ALICE, None), (BOB, None), (BOB, "carol")):
        body = {**BODY, "user": user}
        assert (
            server.client.post("/v1/completions", json=body, headers=bearer(key)).status_code == 200
        )
    assert tenants == ["alice", "bob", "carol"]


def test_prefixes_are_apart_by_key_and_not_by_address(path):
    with running_server(keys=KeyRing(path), isolates_prefixes=True) as server:
        cache = server.engine.scheduler.cache.stats
        hits = []
        for key in (ALICE, BOB, ALICE):
            server.client.post("/v1/completions", json=BODY, headers=bearer(key))
            hits.append(cache.num_hits)
        assert hits == [0, 0, 1]


def test_encoders_ask_for_keys_too(path):
    with encoder_server(keys=KeyRing(path)) as server:
        assert server.post("/v1/embeddings", input="a")[0] == 401
        reply = server.client.post("/v1/embeddings", json={"input": "a"}, headers=bearer(ALICE))
        assert reply.status_code == 200


def test_no_key_is_in_the_log(server, path, caplog):
    caplog.set_level(logging.DEBUG)
    for headers in (bearer(ALICE), bearer("wrong-key-0123456789"), {"x-api-key": ALICE}):
        server.client.post("/v1/completions", json=BODY, headers=headers)
    path.write_text("alice: short-bad-key with space\n")
    server.wait_until(lambda: "stay as they were" in caplog.text)
    assert "key-0123456789" not in caplog.text
    assert "short-bad-key" not in caplog.text
