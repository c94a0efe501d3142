"""A client that hangs up frees its pages within one step of the model."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.engine.build import assemble
from paredown.engine.engine import Engine
from paredown.engine.worker import Worker
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.executors.wrapped_executor import WrappedExecutor
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.serve.app import create_app
from paredown.serve.server import Listen, make_server
from paredown.serve.state import ServerState
from tools.serve_check.finding import Finding

# A step takes this much longer than the model's own time, so that everything else is short beside
# it.
STEP_S = 0.15
NUM_PAGES = 256
NUM_TRIES = 3
# The step that is under way when the client goes.
MAX_STEPS = 1
WAIT_S = 20.0


@dataclass
class _Counted:
    """An engine whose steps are counted as they begin."""

    engine: Engine
    num_steps: int = 0

    @property
    def num_held_pages(self) -> int:
        return NUM_PAGES - self.engine.scheduler.pool.num_free


def check_hang_ups() -> Finding:
    """Streams from the built-in model, hangs up, and counts the steps until no page is held."""
    num_steps = list[int]()
    faults = list[str]()
    with _running() as (counted, port):
        for _ in range(NUM_TRIES):
            found = _steps_until_free(counted, port)
            if found is None:
                faults.append(f"{counted.num_held_pages} pages were held after {WAIT_S:g} s")
                break
            num_steps.append(found)
    faults += [f"pages were held for {num} steps" for num in num_steps if num > MAX_STEPS]
    told = ", ".join(map(str, num_steps))
    return Finding(check="hang up", figures={"steps until free": told}, faults=tuple(faults))


def _steps_until_free(counted: _Counted, port: int) -> int | None:
    """Returns None where pages stay held."""
    body = {"prompt": "It was late", "max_tokens": 200, "ignore_eos": True, "stream": True}
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    client.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    reply = client.getresponse()
    for _ in range(4):
        reply.readline()
    assert counted.num_held_pages, "the stream holds no page"
    reply.close()
    client.close()
    begun = counted.num_steps
    if not _comes_true(lambda: not counted.num_held_pages):
        return None
    return counted.num_steps - begun


@contextmanager
def _running() -> Iterator[tuple[_Counted, int]]:
    """Runs a server of the built-in model in a thread; yields the counted engine and the port."""
    path = resolve_model(None)
    checkpoint, tokenizer = Checkpoint.open(path), Tokenizer.open(path)
    tokenizer.prepare_chat()
    options = RunOptions(num_pages=NUM_PAGES)
    executor = load_executor(checkpoint, options)

    def step(slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        counted.num_steps += 1
        time.sleep(STEP_S)
        return executor.step(slices)

    counted = _Counted(assemble(WrappedExecutor(executor, step), tokenizer, options))
    worker = Worker(lambda: counted.engine)
    state = ServerState(
        model_name="built-in",
        max_positions=executor.context.max_request_tokens,
        tokenizer=tokenizer,
        worker=worker,
    )
    listen = Listen(port=0)
    server = make_server(create_app(state), worker, listen)
    with listen.open_socket() as sock:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            assert _comes_true(lambda: server.started and worker.status == "ready")
            yield counted, sock.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(WAIT_S)


def _comes_true(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.002)
    return True
