"""The stand-in for llama.cpp's helper asks our server for what a test sets, and nothing else."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from tools.conformance.llama_cpp.server_process import (
    InexpressibleError,
    ServerError,
    ServerPreset,
    ServerProcess,
)
from tools.conformance.served import Service

from tools.conformance.llama_cpp import server_process


class Echo(BaseHTTPRequestHandler):
    """Tells what it was asked; streams where that is asked for."""

    def do_GET(self) -> None:
        self._send(200, {"path": self.path, "key": self.headers.get("Authorization")})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "status" in body:
            self._send(body["status"], {"error": "refused"})
        elif body.get("stream"):
            events = b'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]\n\ndata: {"n": 3}\n\n'
            self._send_bytes(200, events)
        else:
            self._send(200, {"path": self.path, "body": body})

    def _send(self, status: int, body: object) -> None:
        self._send_bytes(status, json.dumps(body).encode())

    def _send_bytes(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Writes nothing."""


class Pool:
    """Has one server for every service, and remembers which were asked for."""

    url_root: ClassVar[str]

    def __init__(self) -> None:
        self.services: list[Service] = []

    def url(self, service: Service) -> str:
        self.services.append(service)
        return self.url_root


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        Pool.url_root = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        pool = Pool()
        monkeypatch.setattr(ServerProcess, "pool", pool, raising=False)
        yield pool
        server.shutdown()
        thread.join()


def started(server: ServerProcess) -> ServerProcess:
    server.start()
    return server


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/rerank", "/rerank"),
        ("/health", "/health"),
    ],
)
def test_paths_of_the_openai_api_have_their_version(pool: Pool, asked: str, path: str) -> None:
    server = started(ServerPreset.tinyllama2())
    assert server.make_request("GET", asked).body["path"] == path


def test_a_header_without_a_value_is_not_sent(pool: Pool) -> None:
    server = started(ServerPreset.tinyllama2())
    answer = server.make_request("GET", "/health", headers={"Authorization": None})
    assert answer.body["key"] is None


def test_a_stream_ends_at_done(pool: Pool) -> None:
    server = started(ServerPreset.tinyllama2())
    events = server.make_stream_request("POST", "/chat/completions", {"stream": True})
    assert list(events) == [{"n": 1}, {"n": 2}]


def test_a_stream_that_is_refused_is_an_error(pool: Pool) -> None:
    server = started(ServerPreset.tinyllama2())
    with pytest.raises(ServerError) as caught:
        list(server.make_stream_request("POST", "/completions", {"status": 400}))
    assert (caught.value.code, caught.value.body) == (400, {"error": "refused"})


def test_settings_become_options(pool: Pool, tmp_path: Path) -> None:
    server = ServerPreset.tinyllama2()
    server.model_alias, server.api_key = "one,two", "secret"
    server.chat_template_file = str(tmp_path / "a.jinja")
    server.start()
    (service,) = pool.services
    assert service.name == "one"
    assert service.options[-2:] == ("--alias", "two")
    assert service.api_key == "secret"
    assert service.model.template == tmp_path / "a.jinja"


@pytest.mark.parametrize("preset", [ServerPreset.bert_bge_small, ServerPreset.jina_reranker_tiny])
def test_embeddings_and_ranks_come_from_an_encoder(pool: Pool, preset: object) -> None:
    assert callable(preset)
    preset().start()
    assert pool.services[0].model.is_encoder


@pytest.mark.parametrize("name", ["lora_files", "chat_template", "slot_save_path"])
def test_a_setting_without_an_option_is_an_error(pool: Pool, name: str) -> None:
    server = ServerPreset.tinyllama2()
    setattr(server, name, "x")
    with pytest.raises(InexpressibleError, match=name):
        server.start()


def test_calls_at_once_keep_their_order() -> None:
    results = server_process.parallel_function_calls([(pow, (2, n)) for n in range(5)])
    assert results == [1, 2, 4, 8, 16]
    assert server_process.parallel_function_calls([(pow, ("a", "b"))]) == [None]


def test_a_pattern_is_found_in_any_case_and_across_lines() -> None:
    assert server_process.match_regex("A.*b$", "xa\nB")
    assert not server_process.match_regex("^b", "ab")
