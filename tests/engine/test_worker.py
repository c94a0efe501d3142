"""Sessions that come in are admitted first, and submitted between the steps of others."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from fakes.toy_executor import ToyExecutor, ToyTokenizer
from paredown.engine import worker as worker_module
from paredown.engine.engine import Engine
from paredown.engine.model_thread import UnavailableError
from paredown.engine.packed_logprobs import PackedLogprobs
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.engine.session import MAX_BATCH_STEPS, Job
from paredown.engine.worker import Worker
from paredown.errors import CapacityError, RequestError

PARAMS = SamplingParams(max_tokens=40, ignore_eos=True, seed=1)


def run(ask, **config) -> object:
    """Returns what `ask(worker, engine)` gives while the worker runs."""
    engine = Engine(ToyExecutor(num_pages=256), ToyTokenizer(), ScheduleConfig(**config))

    async def main() -> object:
        one, ready = Worker(lambda: engine), asyncio.Event()
        one.start(ready.set)
        try:
            await ready.wait()
            async with asyncio.timeout(20):
                return await ask(one, engine)
        finally:
            await asyncio.to_thread(one.stop)

    return asyncio.run(main())


async def all_of(session) -> None:
    async for _ in session.outputs():
        pass


@pytest.mark.parametrize("n", [1, 3])
def test_a_reader_that_rests_gets_what_came_meanwhile_and_the_end_at_once(n):
    """It would rest for longer than the test may take."""

    async def ask(worker: Worker, engine: Engine) -> int:
        found = []
        for interval_s in (0.0, 1000.0):
            session = worker.open([Job([1], replace(PARAMS, n=n))])
            batches = [batch async for batch in session.batches(partial(float, interval_s))]
            worker.close(session)
            tokens = [token for batch in batches for _, one in batch for token in one.token_ids]
            assert len(tokens) == 40 * n
            found.append((len(batches), sorted(tokens)))
        (_, steady), (num_batches, rested) = found
        assert steady == rested
        return num_batches

    # The first tokens, what came until an answer ended, and what ended later.
    assert run(ask) <= 2 + n


def test_an_error_wakes_a_reader_that_rests():
    async def ask(worker: Worker, engine: Engine) -> int:
        engine.executor.failing_steps = frozenset({5})
        session = worker.open([Job([1], PARAMS)])
        batches = [batch async for batch in session.batches(lambda: 1000.0)]
        worker.close(session)
        return batches[-1][-1][1].finish_reason

    assert run(ask) == "error"


def test_log_probabilities_that_wait_for_long_are_packed():
    async def ask(worker: Worker, engine: Engine) -> int:
        params = replace(PARAMS, max_tokens=200, logprobs=3)
        session = worker.open([Job([1], params)])
        await session.start()
        while any(place[0] is session for place in worker._places.values()):
            await asyncio.sleep(0.001)
        outputs = [output async for _, output in session.outputs()]
        worker.close(session)
        assert sum(len(one.logprobs) for one in outputs) == 200
        return sum(isinstance(one.logprobs, PackedLogprobs) for one in outputs)

    assert run(ask) > 200 - 3 * MAX_BATCH_STEPS


def test_many_jobs_come_in_while_others_go_on(monkeypatch):
    monkeypatch.setattr(worker_module, "MAX_TAKING_S", 0.0)

    async def ask(worker: Worker, engine: Engine) -> list[int]:
        submit, steps = engine.submit_many, list[int]()

        def note(*arguments):
            steps.append(engine.executor.num_steps)
            return submit(*arguments)

        engine.submit_many = note
        first = worker.open([Job([1], PARAMS)])
        await first.start()
        many = worker.open([Job([number], PARAMS) for number in range(2, 12)])
        await asyncio.gather(all_of(first), all_of(many))
        for one in (first, many):
            worker.close(one)
        return steps

    steps = run(ask)
    assert len(steps) == 11
    assert len(set(steps[1:])) == 10


def test_all_jobs_are_checked_before_one_is_submitted():
    async def ask(worker: Worker, engine: Engine) -> int:
        session = worker.open([Job([1], PARAMS), Job([2], PARAMS), Job([99_999], PARAMS)])
        with pytest.raises(RequestError, match="99999"):
            await session.start()
        worker.close(session)
        return engine.executor.num_steps

    assert run(ask) == 0


def test_admitted_answers_count_until_they_are_closed():
    async def ask(worker: Worker, engine: Engine) -> None:
        session, more = worker.admit(2), worker.admit(1)
        assert worker.num_open_answers == 3
        with pytest.raises(QueueFullError):
            worker.admit(1)
        worker.close(session)
        worker.close(session)
        worker.close(more)
        assert worker.num_open_answers == 0
        other = worker.admit(1)
        worker.submit(other, [Job([1], PARAMS)])
        await all_of(other)
        worker.close(other)
        assert worker.num_open_answers == 0

    run(ask, max_running=1, max_waiting=2)


def test_more_answers_than_ever_wait_are_refused_for_good():
    async def ask(worker: Worker, engine: Engine) -> None:
        with pytest.raises(CapacityError, match="3 answers, at most 2") as refused:
            worker.admit(3)
        assert not isinstance(refused.value, QueueFullError)
        assert worker.num_open_answers == 0

    run(ask, max_running=8, max_waiting=2)


def test_stopping_tells_who_was_being_submitted(monkeypatch):
    monkeypatch.setattr(worker_module, "MAX_TAKING_S", 0.0)

    async def ask(worker: Worker, engine: Engine) -> str:
        session = worker.open([Job([number], PARAMS) for number in range(1, 100)])
        worker.ask_to_stop()
        try:
            await all_of(session)
        except UnavailableError:
            return "told"
        finally:
            worker.close(session)
        return "answered"

    assert run(ask) == "told"


def test_a_short_request_does_not_wait_for_many_long_ones(monkeypatch):
    monkeypatch.setattr(worker_module, "MAX_TAKING_S", 0.0)

    async def ask(worker: Worker, engine: Engine) -> list[int]:
        submit, submitted = engine.submit_many, list[int]()

        def note(prompt_token_ids, *arguments):
            submitted.append(prompt_token_ids[0])
            return submit(prompt_token_ids, *arguments)

        engine.submit_many = note
        wide = [worker.open([Job([2], PARAMS) for _ in range(20)]) for _ in range(4)]
        short = worker.open([Job([1], PARAMS)])
        await asyncio.gather(*(all_of(one) for one in (*wide, short)))
        for one in (*wide, short):
            worker.close(one)
        return submitted

    submitted = run(ask)
    assert len(submitted) == 81
    assert submitted.index(1) < 5
