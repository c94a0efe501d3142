"""Runs a real server over a scripted encoder in a thread, on a free loopback port."""

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from fakes.scripted_encoder import EMBEDDING, ScriptedEncoder, encoder_spec
from fakes.word_tokenizer import word_tokenizer
from paredown.engine.encode.batch_config import BatchConfig
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.encoder_worker import EncoderWorker
from paredown.executors.encoder_protocol import EncoderExecutor
from paredown.models.encoder_settings import EncoderSettings
from paredown.serve.app import create_app
from paredown.serve.encoder_state import EncoderState
from paredown.serve.server import Listen, make_server
from paredown.spec.head import Head

NAME = "toy"


def toy_model(
    head: Head = EMBEDDING, *, cuts_anywhere: bool = False, **settings: Any
) -> EncoderModel:
    """Returns a toy model over words; `settings` are those of EncoderSettings."""
    spec = encoder_spec(head)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = word_tokenizer(Path(folder))
    return EncoderModel(
        spec=spec,
        settings=EncoderSettings(**{"max_tokens": spec.max_positions, **settings}),
        tokenizer=tokenizer,
        cuts_anywhere=cuts_anywhere,
    )


@dataclass
class RunningEncoder:
    url: str
    worker: EncoderWorker
    client: httpx.Client

    def post(self, path: str, **body: object) -> tuple[int, Any]:
        """Returns the status and the object."""
        reply = self.client.post(path, json={"model": NAME, **body})
        return reply.status_code, reply.json()

    def embed(self, texts: object, **body: object) -> np.ndarray:
        """Returns the vectors of a request that must succeed."""
        status, found = self.post("/v1/embeddings", input=texts, **body)
        assert status == 200, found
        assert [one["index"] for one in found["data"]] == list(range(len(found["data"])))
        return np.array([one["embedding"] for one in found["data"]], np.float32)

    def rank(self, query: str, documents: list[str], **body: object) -> list[Mapping[str, Any]]:
        """Returns the results of a request that must succeed."""
        status, found = self.post("/v1/rerank", query=query, documents=documents, **body)
        assert status == 200, found
        return found["results"]

    def wait_until(self, condition: Any, timeout_s: float = 10.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, "it did not come true"
            time.sleep(0.005)


@contextmanager
def encoder_server(
    model: EncoderModel | None = None,
    executor: EncoderExecutor | None = None,
    *,
    config: BatchConfig | None = None,
    drain_s: int = 5,
    page: bool = False,
    **options: Any,
) -> Iterator[RunningEncoder]:
    """Runs the server inside the block; `options` are fields of Listen, or of EncoderState."""
    model = toy_model() if model is None else model
    executor = ScriptedEncoder(spec=model.spec) if executor is None else executor
    worker = EncoderWorker(lambda: executor, config)
    names = [one.name for one in fields(Listen) if one.name in options]
    listen = Listen(port=0, drain_s=drain_s, **{name: options.pop(name) for name in names})
    state = EncoderState(model_name=NAME, model=model, worker=worker, **options)
    server = make_server(create_app(state, page=page), worker, listen)
    sock = listen.open_socket()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=30) as client:
            running = RunningEncoder(url, worker, client)
            running.wait_until(lambda: server.started and worker.status == "ready")
            yield running
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
