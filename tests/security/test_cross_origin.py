"""S21: pages of other sites may use the server where it says so, and nowhere else."""

import httpx
import pytest

from drivers.running_server import running_server
from paredown.serve.doors.cross_origin import CrossOrigins
from paredown.serve.doors.key_ring import KeyRing

KEY = "alices-key-0123456789"
OURS, EVIL = "https://app.example.org", "https://evil.example"
BODY = {"model": "toy", "prompt": "x", "max_tokens": 2}
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type, x-stainless-lang",
}


def preflight(server, origin):
    headers = {"Origin": origin, **PREFLIGHT}
    return server.client.options("/v1/chat/completions", headers=headers)


def test_no_page_of_another_site_may_unless_it_is_named():
    with running_server() as server:
        assert preflight(server, OURS).status_code == 403
        reply = server.client.post("/v1/completions", json=BODY, headers={"Origin": OURS})
        assert reply.status_code == 403
        assert "--cors-origin" in reply.json()["error"]["message"]
        assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.fixture
def server():
    pages = CrossOrigins.of([OURS])
    with running_server(pages=pages, keys=KeyRing(None, f"alice: {KEY}")) as running:
        yield running


def test_a_preflight_needs_no_key_and_says_what_may_be_sent(server):
    reply = preflight(server, OURS)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == OURS
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert "x-stainless-lang" in reply.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in reply.headers
    assert preflight(server, EVIL).status_code == 403


def test_answers_and_refusals_can_be_read_by_the_page(server):
    for headers, status in (({}, 401), ({"Authorization": f"Bearer {KEY}"}, 200)):
        headers = {"Origin": OURS, **headers}
        reply = server.client.post("/v1/completions", json=BODY, headers=headers)
        assert reply.status_code == status
        assert reply.headers["access-control-allow-origin"] == OURS
        assert "X-Request-Id" in reply.headers["access-control-expose-headers"]
        assert "Origin" in reply.headers["vary"]


def test_a_named_page_does_not_let_others_in_nor_other_hosts(server):
    authorized = {"Authorization": f"Bearer {KEY}"}
    for headers in ({"Origin": EVIL}, {"Origin": "null"}, {"Origin": OURS, "Host": "evil.example"}):
        reply = server.client.post("/v1/completions", json=BODY, headers=authorized | headers)
        assert reply.status_code == 403


def test_a_star_is_any_page_but_not_any_host():
    with running_server(pages=CrossOrigins.of(["*"])) as server:
        reply = server.client.post("/v1/completions", json=BODY, headers={"Origin": EVIL})
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == "*"
        assert preflight(server, "null").status_code == 200
        rebound = {"Origin": "http://evil.example", "Host": "evil.example"}
        assert httpx.get(f"{server.url}/v1/models", headers=rebound).status_code == 403
