"""/health, /ready and /version through the life of a server."""

import threading

import paredown
from drivers.running_server import NUM_PAGES, SPEC, running_server
from fakes.toy_executor import ToyExecutor
from paredown.engine.schedule.step_plan import StepPlan

BODY = {"model": "toy", "prompt": "x", "max_tokens": 3}


def probe(server, path):
    reply = server.client.get(path)
    assert (reply.headers.get("retry-after") is not None) == (reply.status_code == 503)
    return reply.status_code, reply.json()["status"]


def test_not_ready_while_the_model_loads():
    may_load = threading.Event()

    def load(engine):
        may_load.wait(20)
        return engine

    with running_server(load=load, wait=False) as server:
        assert probe(server, "/ready") == probe(server, "/health") == (503, "loading")
        may_load.set()
        server.wait_until(lambda: probe(server, "/ready") == (200, "ready"))


class StuckExecutor(ToyExecutor):
    def __init__(self):
        super().__init__(num_pages=NUM_PAGES, spec=SPEC)
        self.may_go_on = threading.Event()

    def step(self, slices):
        self.may_go_on.wait(20)
        return super().step(slices)


def test_not_ready_while_a_step_hangs():
    executor = StuckExecutor()
    with running_server(executor=executor, stall_s=0.05) as server:
        asking = threading.Thread(target=lambda: server.client.post("/v1/completions", json=BODY))
        asking.start()
        server.wait_until(lambda: probe(server, "/ready") == (503, "stalled"))
        executor.may_go_on.set()
        asking.join(10)
        assert probe(server, "/ready") == (200, "ready")


def test_not_ready_while_steps_compute_nothing_though_a_request_waits():
    with running_server(stall_s=0.05) as server:
        scheduler = server.engine.scheduler
        schedule, scheduler.schedule = scheduler.schedule, StepPlan
        asking = threading.Thread(target=lambda: server.client.post("/v1/completions", json=BODY))
        asking.start()
        server.wait_until(lambda: probe(server, "/ready") == (503, "stalled"))
        scheduler.schedule = schedule
        asking.join(10)
        assert probe(server, "/ready") == (200, "ready")


def test_not_ready_once_the_server_is_told_to_stop():
    with running_server() as server:
        server.state.stopping.set()
        assert probe(server, "/ready") == (503, "draining")
        assert probe(server, "/health") == (200, "ready")


def test_the_version():
    with running_server() as server:
        assert server.client.get("/version").json() == {"version": paredown.__version__}
