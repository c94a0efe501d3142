"""Clients that go, models that fail, queues that fill: everyone gets an answer and it goes on."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from drivers.running_server import NUM_PAGES, SPEC, running_server
from fakes.toy_executor import ToyExecutor
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.errors import CheckpointError

LONG = {"model": "toy", "prompt": "x", "max_tokens": 250, "ignore_eos": True}


def slow_executor(delay_s=0.01):
    return ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, delay_s=delay_s)


def test_a_client_that_hangs_up_in_a_stream_frees_its_pages():
    executor = slow_executor()
    with running_server(executor=executor) as server:
        with server.client.stream(
            "POST", "/v1/completions", json={**LONG, "n": 3, "stream": True}
        ) as reply:
            lines = reply.iter_lines()
            next(lines)
            assert server.engine.num_unfinished == 3
        server.wait_until(lambda: server.is_empty)
        assert executor.num_steps < 200
        assert server.worker.num_open_answers == 0


def test_pages_of_a_client_that_hangs_up_are_free_within_one_step():
    """Steps are long beside everything else."""
    executor = slow_executor(0.1)
    with running_server(executor=executor) as server:
        body = {**LONG, "stream": True}
        with server.client.stream("POST", "/v1/completions", json=body) as reply:
            next(reply.iter_lines())
            assert not server.is_empty
        num_steps = executor.num_steps
        server.wait_until(lambda: server.is_empty)
        assert executor.num_steps <= num_steps + 1


def test_clients_that_hang_up_during_a_step_stay_counted_until_it_ends_and_are_not_begun():
    executor = slow_executor(1.0)
    config = ScheduleConfig(max_running=1, max_waiting=3)
    with (
        running_server(executor=executor, config=config) as server,
        server.client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as running,
    ):
        lines = running.iter_lines()
        next(lines)
        statuses = list[int]()
        for _ in range(8):
            with httpx.Client(timeout=0.05) as client:
                try:
                    reply = client.post(f"{server.url}/v1/completions", json=LONG)
                    statuses.append(reply.status_code)
                except httpx.ReadTimeout:
                    continue
        assert set(statuses) == {429}
        server.wait_until(lambda: server.worker.num_open_answers == 1)
        assert server.engine.num_unfinished == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_gives_up_waiting_leaves_the_queue(stream):
    body = {**LONG, "stream": True}
    with (
        running_server(executor=slow_executor(), config=ScheduleConfig(max_running=1)) as server,
        server.client.stream("POST", "/v1/completions", json=body) as running,
    ):
        lines = running.iter_lines()
        next(lines)
        with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.2) as client:
            client.post(f"{server.url}/v1/completions", json={**LONG, "n": 2, "stream": stream})
        server.wait_until(lambda: server.engine.num_unfinished == 1)
        assert server.worker.num_open_answers == 1


def test_a_client_that_gives_up_on_a_whole_answer_frees_its_pages():
    executor = slow_executor(0.02)
    with running_server(executor=executor) as server:
        with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.2) as client:
            client.post(f"{server.url}/v1/completions", json=LONG)
        server.wait_until(lambda: server.is_empty)
        assert executor.num_steps < 200


def test_a_failing_step_is_an_answer_and_the_server_lives():
    executor = ToyExecutor(num_pages=NUM_PAGES, spec=SPEC, failing_steps=frozenset({3, 8}))
    with running_server(executor=executor) as server:
        reply = server.client.post("/v1/completions", json=LONG)
        assert reply.status_code == 500
        assert "injected failure" in reply.json()["error"]["message"]
        # ignore_eos: a sampled end of text could come before the step that fails.
        body = {"model": "toy", "prompt": "x", "max_tokens": 99, "stream": True}
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
            stream = client.completions.create(**body, extra_body={"ignore_eos": True})
            with pytest.raises(openai.APIError, match="injected failure"):
                list(stream)
        assert server.client.post("/v1/completions", json=LONG).status_code == 200
        assert server.client.get("/health").status_code == 200
        server.wait_until(lambda: server.is_empty)


def test_a_full_queue_is_429_with_retry_after():
    config = ScheduleConfig(max_running=1, max_waiting=2)
    body = {**LONG, "max_tokens": 60}
    with running_server(executor=slow_executor(), config=config) as server:
        with ThreadPoolExecutor(12) as pool:
            futures = [
                pool.submit(httpx.post, f"{server.url}/v1/completions", json=body, timeout=60)
                for _ in range(12)
            ]
            replies = [future.result() for future in futures]
        codes = [reply.status_code for reply in replies]
        assert set(codes) == {200, 429}
        assert codes.count(200) <= 3
        refused = next(reply for reply in replies if reply.status_code == 429)
        assert refused.headers["Retry-After"] == "1"
        assert refused.json()["error"]["code"] == "queue_full"
        server.wait_until(lambda: server.is_empty)


def test_health_is_503_while_loading_and_requests_too():
    may_load = threading.Event()

    def load(engine):
        may_load.wait(20)
        return engine

    with running_server(load=load, wait=False) as server:
        reply = server.client.get("/health")
        assert (reply.status_code, reply.json()) == (503, {"status": "loading"})
        refused = server.client.post("/v1/completions", json=LONG)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        may_load.set()
        server.wait_until(lambda: server.client.get("/health").status_code == 200)


def test_a_model_that_cannot_be_loaded_leaves_a_dead_worker_with_its_reason():
    error = CheckpointError("broken", seen="x", remedy="y")

    def load(engine):
        raise error

    with running_server(load=load, wait=False) as server:
        server.wait_until(lambda: server.worker.status == "dead")
        assert server.worker.failure is error
        assert server.client.get("/health").status_code == 503


def test_when_the_engines_thread_dies_everyone_is_told():
    def fail():
        raise RuntimeError("a bug")

    executor = slow_executor()
    with running_server(executor=executor) as server:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(httpx.post, f"{server.url}/v1/completions", json=LONG, timeout=60)
            server.wait_until(lambda: executor.num_steps > 3)
            server.engine.step = fail
            assert future.result().status_code == 503
        assert server.client.get("/health").json() == {"status": "dead"}
        assert server.client.post("/v1/completions", json=LONG).status_code == 503


def test_health_is_503_when_a_step_does_not_end():
    may_end = threading.Event()
    executor = slow_executor(0)
    healthy_step = executor.step

    def step(slices):
        may_end.wait(20)
        return healthy_step(slices)

    executor.step = step
    with running_server(executor=executor, stall_s=0.1) as server:
        with ThreadPoolExecutor(1) as pool:
            body = {**LONG, "max_tokens": 2}
            future = pool.submit(httpx.post, f"{server.url}/v1/completions", json=body, timeout=60)
            server.wait_until(lambda: server.client.get("/health").json() == {"status": "stalled"})
            assert server.client.get("/health").status_code == 503
            may_end.set()
            assert future.result().status_code == 200
        server.wait_until(lambda: server.client.get("/health").status_code == 200)


def test_stopping_drains_what_is_under_way():
    with ThreadPoolExecutor(1) as pool:
        with running_server(executor=slow_executor(0.005)) as server:
            future = pool.submit(httpx.post, f"{server.url}/v1/completions", json=LONG, timeout=60)
            server.wait_until(lambda: server.engine.num_unfinished == 1)
        assert future.result().status_code == 200
        assert future.result().json()["usage"]["completion_tokens"] == 250


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_unfinished_after_the_drain_is_told_so(stream):
    with ThreadPoolExecutor(1) as pool:
        with running_server(executor=slow_executor(0.05), drain_s=0) as server:
            body = {**LONG, "stream": stream}
            future = pool.submit(httpx.post, f"{server.url}/v1/completions", json=body, timeout=60)
            server.wait_until(lambda: server.engine.num_unfinished == 1)
        reply = future.result()
        assert reply.status_code in ((200, 503) if stream else (503,))
        assert "can no longer answer" in reply.text


def test_a_body_that_does_not_come_is_given_up(monkeypatch):
    monkeypatch.setattr("paredown.serve.intake.body.BODY_TIMEOUT_S", 0.1)
    with running_server() as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
            )
            assert b" 408 " in raw.recv(4096)
