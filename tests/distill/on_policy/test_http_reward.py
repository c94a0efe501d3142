"""An address is asked again while it is busy, and garbage is told."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paredown.distill.on_policy.http_reward import HttpReward
from paredown.distill.on_policy.reward import checked_scores
from paredown.errors import ConfigError, TrainingError

Reply = tuple[int, bytes]


@contextmanager
def replying(
    *replies: Reply, retry_after: str | None = None
) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Runs a server that gives these replies in turn, the last one ever after, all with the same
    Retry-After. An empty body with status 0 hangs up. Yields its address and what it was asked."""
    asked: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            asked.append(json.loads(self.rfile.read(length)))
            status, body = replies[min(len(asked), len(replies)) - 1]
            if not status:
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "/elsewhere")
            if retry_after is not None:
                self.send_header("Retry-After", retry_after)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/score", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reward(url: str, **changes: float) -> HttpReward:
    return HttpReward(url=url, wait_s=0.001, timeout_s=5.0, **changes)  # type: ignore[arg-type]


GOOD = 200, b'{"rewards": [1, -0.5]}'


def test_prompts_and_answers_are_sent_and_scored() -> None:
    with replying(GOOD) as (url, asked):
        assert reward(url).scores(["a", "Zo\u00eb"], ["c", "\U0001f98a"]) == [1.0, -0.5]
    assert asked == [{"prompts": ["a", "Zo\u00eb"], "answers": ["c", "\U0001f98a"]}]


@pytest.mark.parametrize("reply", [(503, b""), (429, b"wait"), (409, b""), (500, b"{}"), (0, b"")])
def test_a_busy_address_is_asked_again(reply: Reply) -> None:
    with replying(reply, reply, GOOD) as (url, asked):
        assert reward(url).scores(["a", "b"], ["c", "d"]) == [1.0, -0.5]
    assert len(asked) == 3


def test_a_busy_address_is_left_alone_as_long_as_it_asks() -> None:
    began_s = time.monotonic()
    with replying((429, b""), GOOD, retry_after="0.4") as (url, _):
        assert reward(url).scores(["a", "b"], ["c", "d"]) == [1.0, -0.5]
    assert 0.4 <= time.monotonic() - began_s < 4


def test_an_address_that_wants_to_be_left_alone_for_long_is_told() -> None:
    with (
        replying((503, b""), GOOD, retry_after="3600") as (url, asked),
        pytest.raises(TrainingError, match="no request for 1 h"),
    ):
        reward(url).scores(["a"], ["b"])
    assert len(asked) == 1


def test_an_address_that_stays_away_is_told() -> None:
    with (
        replying((503, b"")) as (url, asked),
        pytest.raises(TrainingError, match="status 503, after 3 tries"),
    ):
        reward(url, num_tries=3).scores(["a"], ["b"])
    assert len(asked) == 3
    with pytest.raises(TrainingError, match="ConnectError"):
        reward(url, num_tries=2).scores(["a"], ["b"])


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, b"", "something else"),
        (200, b"<html>", "something else"),
        (200, b"[1, 2]", "something else"),
        (200, b'{"reward": [1, 2]}', "something else"),
        (200, b'{"rewards": 1}', "something else"),
        (200, b'{"rewards": [1, "2"]}', "something else"),
        (200, b'{"rewards": [1, true]}', "something else"),
        (200, b'{"rewards": [1, null]}', "something else"),
        (200, b'{"rewards": [1, 1' + 400 * b"0" + b"]}", "something else"),
        (200, b'{"rewards": [1]}', "1 scores, 2 answers"),
        (200, b'{"rewards": [1, NaN]}', "no finite number"),
        (200, 5000 * b"[" + 5000 * b"]", "something else"),
        (200, (17 << 20) * b" ", "more than 16 MiB"),
        (404, b"who?", "status 404: who"),
        (302, b"", "status 302"),
        (204, b"", "status 204"),
    ],
)
def test_garbage_is_told_at_once(status: int, body: bytes, says: str) -> None:
    with replying((status, body)) as (url, asked), pytest.raises(TrainingError, match=says):
        checked_scores(reward(url), ["a", "b"], ["c", "d"])
    assert len(asked) == 1


@pytest.mark.parametrize("url", ["", "host", "ftp://host", "http://", "file:///etc/passwd"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="address is none"):
        HttpReward(url=url)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="shown in logs") as raised:
        HttpReward(url="https://me:pw-1234@host/score")
    assert "pw-1234" not in str(raised.value)
