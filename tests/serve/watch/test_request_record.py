"""Ids of requests: the client's own, cleaned, or a new one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from drivers.running_server import running_server
from paredown.serve.watch.request_record import MAX_ID_CHARS, RequestRecord, request_id

ID = re.compile(r"[A-Za-z0-9._:@/+=-]{1,64}")


@given(st.binary(max_size=400))
def test_any_bytes_become_an_id_of_plain_characters(sent):
    found = request_id([(b"x-request-id", sent)])
    assert ID.fullmatch(found)
    assert len(found) <= MAX_ID_CHARS


def test_a_clients_id_is_kept_and_a_new_one_is_new():
    assert (
        request_id([(b"host", b"x"), (b"x-request-id", b"abc-1.2:3@x/y+z=")]) == "abc-1.2:3@x/y+z="
    )
    assert request_id([(b"x-request-id", b'a"\r\nb c\xff')]) == "abc"
    assert len({request_id([]) for _ in range(100)}) == 100


def test_tokens_and_the_first_of_them():
    record = RequestRecord.of({"headers": []})
    record.note_generated(0)
    assert record.first_token_s is None
    record.note_generated(2)
    first_s = record.first_token_s
    record.note_generated(3)
    assert record.num_generated_tokens == 5
    assert record.first_token_s == first_s


def test_every_answer_has_the_id_of_its_request():
    with running_server() as server:
        for path in ("/health", "/v1/models", "/nothing"):
            reply = server.client.get(path, headers={"X-Request-Id": "mine-1"})
            assert reply.headers["x-request-id"] == "mine-1"
        body = {"prompt": "x", "max_tokens": 3, "stream": True}
        reply = server.client.post("/v1/completions", json=body)
        assert reply.headers["x-request-id"].startswith("req_")
        assert server.client.get("/health", headers={"Host": "evil"}).headers["x-request-id"]
