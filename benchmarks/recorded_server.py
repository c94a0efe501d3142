"""Our HTTP server on a free port, in a thread, whose steps are recorded as they are run."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from paredown.cost.step_cost import StepLoad, chunk_pairs
from paredown.engine.detokenize import prepare_texts
from paredown.engine.engine import Engine
from paredown.engine.request import Request
from paredown.engine.request_output import RequestOutput
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.step_plan import StepPlan
from paredown.engine.worker import Worker
from paredown.evaluate.load.arrival import Arrival
from paredown.executors.protocol import LoadedExecutor
from paredown.models.text.tokenizer import Tokenizer
from paredown.serve.app import create_app
from paredown.serve.server import Listen, make_server
from paredown.serve.state import ServerState

_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """`seconds`: from its beginning to that of the next one, or to its end where none followed."""

    load: StepLoad
    seconds: float


class RecordingEngine(Engine):
    """Notes the load of each step and how long it was until the next."""

    def __init__(
        self, executor: LoadedExecutor, tokenizer: Tokenizer, config: ScheduleConfig
    ) -> None:
        super().__init__(executor, tokenizer, config)
        self.steps: list[RecordedStep] = []
        self.requests: list[Request] = []
        self._open: tuple[StepLoad, float] | None = None
        self._plan_load: StepLoad | None = None
        schedule = self.scheduler.schedule

        def recorded() -> StepPlan:
            plan = schedule()
            self._plan_load = load_of(plan) if plan.chunks else None
            return plan

        self.scheduler.schedule = recorded  # type: ignore[method-assign]

    def step(self) -> list[RequestOutput]:
        started_s = time.perf_counter()
        self._note_step(started_s)
        outputs = super().step()
        if self._plan_load is not None:
            self._open = (self._plan_load, started_s)
        if not self.num_unfinished:
            self._note_step(time.perf_counter())
        return outputs

    def submit_many(self, *args: Any, **options: Any) -> list[Request]:
        requests = super().submit_many(*args, **options)
        self.requests += requests
        return requests

    def _note_step(self, now_s: float) -> None:
        if self._open is not None:
            load, started_s = self._open
            self.steps.append(RecordedStep(load=load, seconds=now_s - started_s))
            self._open = None


@dataclass
class Exchange:
    """What the client saw of each request, and the server's own record of it."""

    sent_s: list[float] = field(default_factory=list)
    ttfts_s: list[float] = field(default_factory=list)
    e2es_s: list[float] = field(default_factory=list)
    # Of the same requests, seconds that the client saw more than the engine.
    extra_ttfts_s: list[float] = field(default_factory=list)
    extra_e2es_s: list[float] = field(default_factory=list)
    steps: list[RecordedStep] = field(default_factory=list)


def load_of(plan: StepPlan) -> StepLoad:
    sizes = [num_tokens for _, num_tokens in plan.chunks]
    starts = [request.num_computed_tokens for request, _ in plan.chunks]
    answered = [
        request
        for start, (request, size) in zip(starts, plan.chunks, strict=True)
        if start + size == request.num_tokens
    ]
    return StepLoad(
        num_tokens=sum(sizes),
        num_logits=len(answered),
        num_requests=len(sizes),
        attention_pairs=sum(map(chunk_pairs, starts, sizes)),
        kv_tokens_read=sum(starts) + sum(sizes),
        num_first_tokens=sum(one.num_generated_tokens == 0 for one in answered),
    )


@contextmanager
def recorded_server(
    executor: LoadedExecutor, tokenizer: Tokenizer, config: ScheduleConfig
) -> Iterator[tuple[str, RecordingEngine]]:
    """Its address and its engine."""
    prepare_texts(tokenizer, executor.spec.vocab_size)
    engine = RecordingEngine(executor, tokenizer, config)
    worker = Worker(lambda: engine)
    state = ServerState(
        model_name="model",
        max_positions=executor.spec.max_positions,
        tokenizer=tokenizer,
        worker=worker,
    )
    listen = Listen(port=0, drain_s=5)
    server = make_server(create_app(state), worker, listen)
    with listen.open_socket() as sock:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            deadline_s = time.monotonic() + _TIMEOUT_S
            while not (server.started and worker.status == "ready"):
                assert time.monotonic() < deadline_s, worker.failure
                time.sleep(0.01)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}", engine
        finally:
            server.should_exit = True
            thread.join(_TIMEOUT_S)


def exchange(url: str, engine: RecordingEngine, arrivals: Sequence[Arrival], seed: int) -> Exchange:
    """Sends all of them at their times, from another process, and waits for the answers."""
    vocab_size = engine.executor.spec.vocab_size
    prompts = [one.prompt(vocab_size, (seed, number)) for number, one in enumerate(arrivals)]
    asked = [
        {"at_s": one.at_s, "prompt": prompt, "max_tokens": one.num_output_tokens}
        for one, prompt in zip(arrivals, prompts, strict=True)
    ]
    engine.steps.clear()
    engine.requests.clear()
    answered = subprocess.run(
        [sys.executable, "-m", "benchmarks.load_client", url],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    by_prompt = {tuple(one.token_ids[: one.num_prompt_tokens]): one for one in engine.requests}
    found = Exchange(steps=list(engine.steps))
    for one, prompt in zip(json.loads(answered.stdout), prompts, strict=True):
        assert one["first_s"] is not None, "the server refused a request"
        request = by_prompt[tuple(prompt)]
        assert request.first_token_s is not None
        assert request.finish_s is not None
        found.sent_s.append(one["sent_s"])
        found.ttfts_s.append(one["first_s"] - one["sent_s"])
        found.e2es_s.append(one["last_s"] - one["sent_s"])
        engine_ttft_s = request.first_token_s - request.arrival_s
        engine_e2e_s = request.finish_s - request.arrival_s
        found.extra_ttfts_s.append(found.ttfts_s[-1] - engine_ttft_s)
        found.extra_e2es_s.append(found.e2es_s[-1] - engine_e2e_s)
    return found
