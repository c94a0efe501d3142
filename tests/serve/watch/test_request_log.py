"""One line a request, without what was asked and answered; what is left out is counted."""

import json

import pytest

from drivers.running_server import running_server
from paredown.serve.watch import request_log
from paredown.serve.watch.request_line import RequestLine
from paredown.serve.watch.request_log import MAX_LINES, RequestLog

LINE = RequestLine(
    request_id="req_1",
    method="GET",
    path="/v1/models",
    status=200,
    is_whole=True,
    num_prompt_tokens=0,
    num_generated_tokens=0,
    time_to_first_token_s=None,
    duration_s=0.25,
    key_name="",
)


@pytest.fixture
def now_s(monkeypatch):
    found = [0.0]
    monkeypatch.setattr(request_log.time, "monotonic", lambda: found[0])
    return found


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_second_has_so_many_lines_and_the_others_are_counted(form, now_s):
    lines = []
    log = RequestLog(form, lines.append)
    for _ in range(MAX_LINES + 1234):
        log.write(LINE)
    assert len(lines) == MAX_LINES
    now_s[0] = 1.5
    log.tell_left_out()
    assert len(lines) == MAX_LINES + 1
    if form == "json":
        assert json.loads(lines[-1])["left_out"] == 1234
    else:
        assert lines[-1].endswith(" 1,234 more requests were left out\n")
    log.write(LINE)
    log.tell_left_out(at_once=True)
    assert len(lines) == MAX_LINES + 2


def test_lines_that_have_no_room_are_counted_until_that_can_be_told(now_s):
    lines, has_room = [], [False]

    def write(line):
        if has_room[0]:
            lines.append(line)
        return has_room[0]

    log = RequestLog("json", write)
    for second in range(3):
        log.write(LINE)
        now_s[0] = 1.5 * (second + 1)
    has_room[0] = True
    log.write(LINE)
    assert [json.loads(line).get("left_out") for line in lines] == [3, None]


def test_the_line_of_a_completion():
    lines = []
    secret = "a secret prompt"
    with running_server(log=RequestLog("json", lines.append)) as server:
        for stream in (False, True):
            body = {"prompt": secret, "max_tokens": 7, "ignore_eos": True, "stream": stream}
            headers = {"X-Request-Id": f"mine-{stream}"}
            reply = server.client.post("/v1/completions?key=hidden", json=body, headers=headers)
            assert reply.status_code == 200
        server.client.post("/v1/completions", json={"prompt": secret, "nothing": secret})
        server.client.get("/health")
        server.wait_until(lambda: len(lines) == 3)
    found = [json.loads(line) for line in lines]
    for one, name in zip(found, ("mine-False", "mine-True"), strict=False):
        assert one["id"] == name
        assert (one["method"], one["path"], one["status"]) == ("POST", "/v1/completions", 200)
        assert (one["prompt_tokens"], one["completion_tokens"]) == (len(secret), 7)
        assert 0 < one["time_to_first_token_s"] <= one["duration_s"]
        assert "cut_off" not in one
    assert found[2]["status"] == 400
    assert not [line for line in lines if secret in line or "hidden" in line or "\n" in line[:-1]]


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_client_writes_more_than_its_one_line(form):
    lines = []
    with running_server(log=RequestLog(form, lines.append)) as server:
        for path in ("/%0aWARNING: forged", "/%1b[2J%e2%80%ae", "/" + "x" * 5000):
            assert server.client.get(path).status_code == 404
    assert len(lines) == 3
    for line in lines:
        assert line.count("\n") == 1
        assert line.isascii() or form == "text"
        assert line[:-1].isprintable()
        assert len(line) < 500


def test_who_hangs_up_leaves_one_line(capsys):
    lines = []
    body = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with running_server(log=RequestLog("json", lines.append)) as server:
        for _ in range(4):
            with server.client.stream("POST", "/v1/completions", json=body) as reply:
                next(reply.iter_lines())
        server.wait_until(lambda: len(lines) == 4 and server.is_empty)
    assert all(json.loads(line)["status"] == 200 for line in lines)
    assert not capsys.readouterr().err
