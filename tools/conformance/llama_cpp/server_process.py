"""The module `utils` of llama.cpp's server tests, for a Paredown server: written for this purpose,
with the names and the behaviour that the tests rely on.

A path of the OpenAI API without `/v1` is asked with it. Settings of speed and of llama.cpp's own
model files have no effect here; one that would change answers and cannot be expressed is an error.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Literal, Tuple, TypedDict  # noqa: UP035
from urllib.parse import urlsplit

import httpx2

from tools.conformance.llama_cpp.streamed_message import streamed_message
from tools.conformance.served import ServerPool, Service
from tools.conformance.served_model import ServedModel

# The tests import everything from here by `*`.
__all__ = [
    "Any",
    "Literal",
    "Path",
    "ServerError",
    "ServerPreset",
    "ServerProcess",
    "Tuple",
    "TypedDict",
    "is_slow_test_allowed",
    "json",
    "match_regex",
    "os",
    "parallel_function_calls",
    "re",
    "server_instances",
    "sys",
    "time",
]

_TIMEOUT_S = 60.0
_OPENAI_PATHS = ("/chat/completions", "/completions", "/embeddings", "/models", "/responses")
_DEFAULT_NAME = "served"
# Settings that have no effect on what these tests look at.
_WITHOUT_EFFECT = frozenset(
    {
        "debug",
        "fa",
        "jinja",
        "model_hf_file",
        "model_hf_repo",
        "n_batch",
        "n_ctx",
        "n_predict",
        "n_slots",
        "n_ubatch",
        "offline",
        "pooling",
        "seed",
        "server_host",
        "temperature",
    }
)
_EXPRESSED = frozenset(
    {
        "api_key",
        "chat_template_file",
        "model_alias",
        "server_embeddings",
        "server_port",
        "server_reranking",
    }
)


class InexpressibleError(Exception):
    """A test sets what no option of this server says."""


class ServerError(Exception):
    """An answer that is not 200, where a stream was asked for."""

    def __init__(self, code: int, body: Any) -> None:
        super().__init__(code, body)
        self.code, self.body = code, body


@dataclass
class Answer:
    """An answer: `body` is JSON where it can be read as such, else text."""

    status_code: int
    headers: Mapping[str, str]
    body: Any


server_instances: set["ServerProcess"] = set()


class ServerProcess:
    """A server, with the attributes that the tests set before it starts."""

    pool: ClassVar[ServerPool]
    # What the presets and tests read before they set it.
    model_alias: str | None = None
    api_key: str | None = None
    chat_template_file: str | None = None
    server_embeddings = False
    server_reranking = False
    server_host = "127.0.0.1"
    server_port = 8080
    n_ctx: int | None = None
    n_slots: int | None = None
    n_predict: int | None = None
    seed: int | None = None

    def start(self, timeout_seconds: float = _TIMEOUT_S) -> None:
        """Starts the server, or finds one of the same settings running."""
        address = urlsplit(self.pool.url(self._service()))
        assert address.hostname is not None
        assert address.port is not None
        self.server_host, self.server_port = address.hostname, address.port
        server_instances.add(self)

    def stop(self) -> None:
        """Lets the pool stop the server, once another one is asked for."""
        server_instances.discard(self)

    def make_request(
        self,
        method: str,
        path: str,
        data: Any = None,
        headers: Mapping[str, str | None] | None = None,
        timeout: float | None = _TIMEOUT_S,
    ) -> Answer:
        body = None if method in ("GET", "OPTIONS") else data
        answer = httpx2.request(
            method, self._url(path), json=body, headers=_given(headers), timeout=timeout
        )
        try:
            return Answer(answer.status_code, answer.headers, answer.json())
        except json.JSONDecodeError:
            return Answer(answer.status_code, answer.headers, answer.text)

    def make_stream_request(
        self,
        method: str,
        path: str,
        data: Any = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Iterator[Any]:
        """Yields the data of the events up to `[DONE]`. Raises ServerError."""
        with httpx2.stream(
            method, self._url(path), json=data, headers=_given(headers), timeout=_TIMEOUT_S
        ) as answer:
            if answer.status_code != HTTPStatus.OK:
                raise ServerError(answer.status_code, json.loads(answer.read()))
            for line in answer.iter_lines():
                data_text = line.removeprefix("data: ")
                if data_text == "[DONE]":
                    return
                if data_text != line:
                    yield json.loads(data_text)

    def make_any_request(
        self,
        method: str,
        path: str,
        data: Any = None,
        headers: Mapping[str, str | None] | None = None,
        timeout: float | None = _TIMEOUT_S,
    ) -> Any:
        """Returns the body of a chat completion, streamed or not."""
        if data.get("stream"):
            return streamed_message(self.make_stream_request(method, path, data, headers))
        answer = self.make_request(method, path, data, headers, timeout)
        assert answer.status_code == HTTPStatus.OK, answer.body
        return answer.body

    def _service(self) -> Service:
        for name in vars(self):
            if name not in _WITHOUT_EFFECT | _EXPRESSED and getattr(self, name):
                raise InexpressibleError(f"{name} = {getattr(self, name)!r}")
        is_encoder = bool(self.server_embeddings or self.server_reranking)
        template = self.chat_template_file
        model = ServedModel(is_encoder=is_encoder)
        if template is not None:
            model = ServedModel(template=Path(template).resolve())
        name, *others = (self.model_alias or _DEFAULT_NAME).split(",")
        aliases = [word for other in others for word in ("--alias", other)]
        return Service(
            model=model,
            name=name,
            options=("--any-model-name", *aliases),
            api_key=self.api_key,
        )

    def _url(self, path: str) -> str:
        prefix = "/v1" if path in _OPENAI_PATHS else ""
        return f"http://{self.server_host}:{self.server_port}{prefix}{path}"


class ServerPreset:
    """The servers that the tests begin with."""

    @staticmethod
    def load_all() -> None:
        """Nothing has to be downloaded."""

    @staticmethod
    def tinyllama2() -> ServerProcess:
        server = ServerProcess()
        server.model_alias = "tinyllama-2"
        server.n_ctx, server.n_slots, server.n_predict, server.seed = 512, 2, 64, 42
        return server

    @staticmethod
    def bert_bge_small() -> ServerProcess:
        server = ServerProcess()
        server.model_alias = "bert-bge-small"
        server.n_ctx, server.n_slots, server.seed = 512, 2, 42
        server.server_embeddings = True
        return server

    @staticmethod
    def bert_bge_small_with_fa() -> ServerProcess:
        return ServerPreset.bert_bge_small()

    @staticmethod
    def jina_reranker_tiny() -> ServerProcess:
        server = ServerProcess()
        server.model_alias = "jina-reranker"
        server.n_ctx, server.n_slots, server.seed = 512, 1, 42
        server.server_reranking = True
        return server


def parallel_function_calls(
    calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]],
) -> list[Any]:
    """Calls all functions at once, and returns their results in order. A call that fails has None
    for a result."""

    def result(call: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
        function, arguments = call
        try:
            return function(*arguments)
        except Exception as error:
            print(f"a call failed: {error}")
            return None

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(result, calls))


def match_regex(pattern: str, text: str) -> bool:
    """Returns whether the pattern is found in the text, whatever the case of letters."""
    return re.search(pattern, text, re.IGNORECASE | re.MULTILINE | re.DOTALL) is not None


def is_slow_test_allowed() -> bool:
    return False


def _given(headers: Mapping[str, str | None] | None) -> dict[str, str]:
    return {name: value for name, value in (headers or {}).items() if value is not None}
