"""Requests of many tasks share batches; each gets its own rows and its own errors."""

import asyncio
import threading

import numpy as np
import pytest

from fakes.scripted_encoder import ScriptedEncoder
from paredown.engine.encode.batch_config import BatchConfig
from paredown.engine.encode.encode_job import EncodeJob, TextCounts, same_row
from paredown.engine.encode.encoder_worker import EncoderWorker
from paredown.engine.encode.run_batch import ModelFailedError, run_job
from paredown.engine.model_thread import UnavailableError
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.executors.encoder_protocol import TokenText


def job_of(*texts: list[int], keep=same_row) -> EncodeJob:
    return EncodeJob(
        texts=[TokenText(token_ids=text) for text in texts],
        counts=TextCounts(num_tokens=tuple(map(len, texts))),
        finish=list,
        keep=keep,
    )


def run(executor: ScriptedEncoder, ask, **config):
    """Returns what `ask(worker)` gives while the worker runs."""

    async def main():
        worker, changed = EncoderWorker(lambda: executor, BatchConfig(**config)), asyncio.Event()
        worker.start(changed.set)
        try:
            await changed.wait()
            async with asyncio.timeout(20):
                return await ask(worker)
        finally:
            await asyncio.to_thread(worker.stop)

    return asyncio.run(main())


def test_rows_have_the_bits_of_a_text_alone_whoever_else_asks():
    rng = np.random.default_rng(1)
    jobs = [
        job_of(*(rng.integers(1, 500, rng.integers(1, 30)).tolist() for _ in range(5)))
        for _ in range(12)
    ]

    async def ask(worker):
        return await asyncio.gather(
            *(worker.run(job, f"tenant {i % 3}") for i, job in enumerate(jobs))
        )

    executor = ScriptedEncoder()
    found = run(executor, ask, max_batch_tokens=64)
    alone = ScriptedEncoder()
    for job, rows in zip(jobs, found, strict=True):
        assert np.array_equal(rows, run_job(alone, job, 1))
    assert max(sum(map(len, batch)) for batch in executor.batches) <= 64
    assert max(map(len, executor.batches)) > 1


def test_many_requests_share_a_batch():
    executor = ScriptedEncoder(may_go_on=threading.Event())

    async def ask(worker):
        asked = [asyncio.create_task(worker.run(job_of([number]))) for number in range(1, 9)]
        await asyncio.sleep(0.05)
        executor.may_go_on.set()
        await asyncio.gather(*asked)

    run(executor, ask)
    assert len(executor.batches) <= 2


def test_a_failing_text_hurts_nobody_else():
    executor = ScriptedEncoder(fails_at={7}, nan_at={9}, may_go_on=threading.Event())

    async def ask(worker):
        jobs = [job_of([1], [2]), job_of([3], [7]), job_of([4], [9], [5]), job_of([6])]
        asked = [asyncio.create_task(worker.run(job)) for job in jobs]
        await asyncio.sleep(0.05)
        executor.may_go_on.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert worker.num_waiting_texts == worker.num_waiting_tokens == 0
        return found

    good, failed, not_finite, last = run(executor, ask)
    assert [len(good), len(last)] == [2, 1]
    assert isinstance(failed, ModelFailedError)
    assert "scripted to fail" in str(failed)
    assert isinstance(not_finite, ModelFailedError)
    assert "not finite" in str(not_finite)


def test_a_bug_in_what_becomes_of_a_row_is_only_its_own_jobs():
    def breaks(number, row):
        raise ZeroDivisionError("a bug")

    async def ask(worker):
        jobs = [job_of([1]), job_of([2], keep=breaks), job_of([3])]
        return await asyncio.gather(*map(worker.run, jobs), return_exceptions=True)

    good, failed, other = run(ScriptedEncoder(), ask)
    assert len(good) == len(other) == 1
    assert isinstance(failed, ModelFailedError)


def test_who_leaves_has_the_rest_of_its_texts_left_out():
    executor = ScriptedEncoder(may_go_on=threading.Event())

    async def ask(worker):
        long = worker.run(job_of(*([1] * 10 for _ in range(100))))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(long, 0.05)
        executor.may_go_on.set()
        await worker.run(job_of([2]))
        assert worker.num_waiting_texts == 0

    run(executor, ask, max_batch_tokens=20)
    assert len(executor.batches) <= 3


def test_the_queue_is_bounded_and_has_room_again():
    executor = ScriptedEncoder(may_go_on=threading.Event())

    async def ask(worker):
        with pytest.raises(QueueFullError, match="at most 4 at once"):
            await worker.run(job_of(*([1] for _ in range(5))))
        first = asyncio.create_task(worker.run(job_of([1], [2], [3])))
        await asyncio.sleep(0.05)
        with pytest.raises(QueueFullError, match="3 waiting"):
            await worker.run(job_of([4], [5]))
        with pytest.raises(QueueFullError, match="tokens"):
            await worker.run(job_of([4] * 98))
        executor.may_go_on.set()
        await first
        return await worker.run(job_of([4], [5]))

    assert len(run(executor, ask, max_waiting_texts=4, max_waiting_tokens=100)) == 2


def test_stopping_tells_everybody_who_waits():
    executor = ScriptedEncoder(may_go_on=threading.Event())

    async def ask(worker):
        asked = [asyncio.create_task(worker.run(job_of([number]))) for number in range(1, 5)]
        await asyncio.sleep(0.05)
        worker.ask_to_stop()
        executor.may_go_on.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        with pytest.raises(UnavailableError):
            await worker.run(job_of([1]))
        return found

    found = run(executor, ask, max_batch_tokens=1)
    assert all(isinstance(one, UnavailableError) for one in found[1:])


def test_a_model_that_cannot_be_loaded_is_told_to_everybody():
    async def main():
        def load():
            raise RuntimeError("no model")

        worker, changed = EncoderWorker(load), asyncio.Event()
        with pytest.raises(UnavailableError, match="loading"):
            await worker.run(job_of([1]))
        worker.start(changed.set)
        await changed.wait()
        assert worker.status == "dead"
        with pytest.raises(UnavailableError) as raised:
            await worker.run(job_of([1]))
        await asyncio.to_thread(worker.stop)
        return raised.value.__cause__

    assert str(asyncio.run(main())) == "no model"


def test_no_texts_are_no_work():
    executor = ScriptedEncoder()

    async def ask(worker):
        return await worker.run(job_of())

    assert run(executor, ask) == []
    assert not executor.batches
