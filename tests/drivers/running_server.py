"""Runs a real server over the toy model in a thread, on a free loopback port."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import httpx

from fakes.toy_executor import ToyExecutor, ToyTokenizer, toy_spec
from paredown.engine.engine import Engine
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.worker import Worker
from paredown.serve.app import create_app
from paredown.serve.server import Listen, make_server
from paredown.serve.state import ServerState
from paredown.serve.watch.request_log import RequestLog

SPEC = toy_spec(max_positions=256)
NUM_PAGES = 128


@dataclass
class Running:
    url: str
    engine: Engine
    worker: Worker
    client: httpx.Client
    state: ServerState

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, "it did not come true"
            time.sleep(0.005)

    @property
    def is_empty(self) -> bool:
        scheduler = self.engine.scheduler
        return not scheduler.num_unfinished and scheduler.pool.num_free == NUM_PAGES


@contextmanager
def running_server(
    *,
    executor: ToyExecutor | None = None,
    tokenizer: ToyTokenizer | None = None,
    config: ScheduleConfig | None = None,
    load: Callable[[Engine], Engine] = lambda engine: engine,
    stall_s: float = 30.0,
    wait: bool = True,
    drain_s: int = 5,
    page: bool = False,
    **options: Any,
) -> Iterator[Running]:
    """Runs the server inside the block. `load` may be slow or raise; `wait` waits until the model
    is ready, and `page` adds the web page. `options` are fields of Listen, or the
    `log` of requests; all others go to ServerState. With TLS the client trusts nobody."""
    log: RequestLog | None = options.pop("log", None)
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC) if executor is None else executor
    tokenizer = ToyTokenizer() if tokenizer is None else tokenizer
    engine = Engine(executor, tokenizer, config)
    worker = Worker(lambda: load(engine), stall_s=stall_s)
    names = [one.name for one in fields(Listen) if one.name in options]
    listen = Listen(port=0, drain_s=drain_s, **{name: options.pop(name) for name in names})
    state = ServerState(
        model_name="toy",
        max_positions=executor.spec.max_positions,
        tokenizer=tokenizer,
        worker=worker,
        **options,
    )
    server = make_server(create_app(state, page=page), worker, listen, log=log)
    sock = listen.open_socket()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    scheme = "http" if listen.certificates is None else "https"
    url = f"{scheme}://127.0.0.1:{sock.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=30) as client:
            running = Running(url, engine, worker, client, state)
            running.wait_until(lambda: server.started)
            if wait:
                running.wait_until(lambda: worker.status == "ready")
            yield running
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
