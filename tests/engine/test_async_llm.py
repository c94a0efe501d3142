"""AsyncLLM: many askers at once, each may stop, everyone hears when the engine fails."""

import asyncio
import subprocess
import sys

import pytest

from paredown import LLM, AsyncLLM, SamplingParams
from paredown.engine.model_thread import UnavailableError
from paredown.engine.request import Request
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.engine.schedule.service import Service
from paredown.engine.session import Job
from paredown.engine.worker import Worker
from paredown.errors import RequestError

LONG = SamplingParams(max_tokens=1500, ignore_eos=True, seed=1)
SHORT = SamplingParams(max_tokens=12, temperature=0)
PROMPTS = [f"Chapter {number}. It was" for number in range(40)]


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(num_pages=2000, num_threads=1)


async def text_of(llm: AsyncLLM, prompt: str, params: SamplingParams = SHORT) -> str:
    return "".join([piece.text async for piece in llm.stream(prompt, params)])


async def until_idle(llm: LLM) -> None:
    async with asyncio.timeout(10):
        while llm.engine.num_unfinished:
            await asyncio.sleep(0.002)


def test_many_streams_at_once_are_what_each_is_alone(llm: LLM) -> None:
    async def ask() -> list[str]:
        async with AsyncLLM(llm) as served:
            return await asyncio.gather(*(text_of(served, prompt) for prompt in PROMPTS))

    assert asyncio.run(ask()) == [one.text for one in llm.generate(PROMPTS, SHORT)]
    llm.engine.check_integrity()


def test_several_answers_to_a_prompt_are_those_of_generate(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=10)

    async def ask() -> list[str]:
        async with AsyncLLM(llm) as served:
            return [one.text for one in await served.generate("Once upon a time", params)]

    assert asyncio.run(ask()) == [one.text for one in llm.generate("Once upon a time", params)]


def test_leaving_the_loop_cancels(llm: LLM) -> None:
    async def ask() -> None:
        async with AsyncLLM(llm) as served:
            async for piece in served.stream("It was", LONG):
                request = piece.request
                break
            await until_idle(llm)
            assert request.finish_reason == "cancelled"

    asyncio.run(ask())
    assert llm.generate("It was", SHORT)[0].finish_reason == "length"


def test_cancelling_the_task_cancels_its_request_alone(llm: LLM) -> None:
    async def ask() -> str:
        async with AsyncLLM(llm) as served:
            doomed = asyncio.create_task(text_of(served, "It was", LONG))
            while not llm.engine.scheduler.running:
                await asyncio.sleep(0.001)
            (request,) = llm.engine.scheduler.running
            other = asyncio.create_task(text_of(served, PROMPTS[0]))
            doomed.cancel()
            with pytest.raises(asyncio.CancelledError):
                await doomed
            answer = await other
            await until_idle(llm)
            assert request.finish_reason == "cancelled"
            return answer

    assert asyncio.run(ask()) == llm.generate(PROMPTS[0], SHORT)[0].text


def test_a_bad_request_is_refused_alone(llm: LLM) -> None:
    async def ask() -> list[object]:
        async with AsyncLLM(llm) as served:
            return await asyncio.gather(
                text_of(served, "It was" * 2000),
                text_of(served, "It was", SamplingParams(n=2)),
                served.generate([1.5] * 20, SHORT),  # type: ignore[list-item]
                text_of(served, PROMPTS[0]),
                return_exceptions=True,
            )

    too_long, two_answers, no_ids, fine = asyncio.run(ask())
    assert isinstance(no_ids, RequestError)
    assert isinstance(too_long, RequestError)
    assert "longer than the context" in str(too_long)
    assert isinstance(two_answers, RequestError)
    assert fine == llm.generate(PROMPTS[0], SHORT)[0].text


def test_more_than_the_queue_holds_is_refused() -> None:
    small = LLM(num_pages=64, num_threads=1, config=ScheduleConfig(max_running=1, max_waiting=1))

    async def ask() -> list[object]:
        async with AsyncLLM(small) as served:
            asked = [text_of(served, prompt) for prompt in PROMPTS[:5]]
            return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(ask())
    assert {type(one) for one in answers} == {str, QueueFullError}


def test_a_failing_step_is_the_end_of_its_requests(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(slices: object) -> None:
        raise MemoryError("no more")

    async def ask() -> list[str | None]:
        async with AsyncLLM(llm) as served:
            with monkeypatch.context() as patch:
                patch.setattr(llm.engine.executor, "step", fail)
                failed = (await served.generate("It was", SHORT))[0]
                pieces = [one async for one in served.stream("It was", SHORT)]
            (fine,) = await served.generate("It was", SHORT)
            return [failed.error, pieces[-1].error, fine.error]

    first, second, third = asyncio.run(ask())
    assert first == second == "the model failed: MemoryError: no more"
    assert third is None


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit, asyncio.CancelledError])
def test_when_the_thread_dies_everyone_hears_why(kind: type[BaseException]) -> None:
    llm = LLM(num_pages=400, num_threads=1)

    def die() -> None:
        raise kind("a bug")

    async def ask() -> list[object]:
        async with AsyncLLM(llm) as served:
            asked = [asyncio.create_task(text_of(served, one, LONG)) for one in PROMPTS[:3]]
            while llm.engine.num_unfinished < 3:
                await asyncio.sleep(0.001)
            llm.engine.step = die  # type: ignore[method-assign, assignment]
            async with asyncio.timeout(10):
                told = await asyncio.gather(*asked, return_exceptions=True)
            with pytest.raises(UnavailableError):
                await text_of(served, "It was")
            return list(told)

    for error in asyncio.run(ask()):
        assert isinstance(error, UnavailableError)
        assert isinstance(error.__cause__, kind)
    with pytest.raises(RequestError, match="under way"):
        llm.generate("It was", SHORT)


def test_a_submit_that_fails_is_told_to_its_asker_alone(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    submit_many, params = llm.engine.submit_many, SamplingParams(max_tokens=5, seed=1)

    def submit(
        token_ids: list[int], params: SamplingParams, service: Service | None = None
    ) -> list[Request]:
        if params.max_tokens == 5:
            raise ZeroDivisionError("a bug")
        return submit_many(token_ids, params, service)

    monkeypatch.setattr(llm.engine, "submit_many", submit)

    async def ask() -> list[object]:
        async with AsyncLLM(llm) as served, asyncio.timeout(20):
            asked = (text_of(served, PROMPTS[0]), text_of(served, PROMPTS[1], params))
            told = await asyncio.gather(*asked, return_exceptions=True)
            return [*told, await text_of(served, PROMPTS[0])]

    fine, failed, later = asyncio.run(ask())
    assert isinstance(failed, ZeroDivisionError)
    assert "a request could not be submitted" in caplog.text
    assert fine == later == llm.generate(PROMPTS[0], SHORT)[0].text


def test_jobs_are_submitted_together_or_not_at_all(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_many, jobs = llm.engine.submit_many, [Job([5], LONG), Job([6], LONG)]

    def submit(
        token_ids: list[int], params: SamplingParams, service: Service | None = None
    ) -> list[Request]:
        if token_ids == [6]:
            raise ZeroDivisionError("a bug")
        return submit_many(token_ids, params, service)

    monkeypatch.setattr(llm.engine, "submit_many", submit)

    async def ask() -> None:
        worker, ready = Worker(lambda: llm.engine), asyncio.Event()
        worker.start(ready.set)
        try:
            await ready.wait()
            session = worker.open(jobs)
            async with asyncio.timeout(20):
                with pytest.raises(ZeroDivisionError):
                    await session.start()
                await until_idle(llm)
            worker.close(session)
            assert worker.status == "ready"
        finally:
            await asyncio.to_thread(worker.stop)

    asyncio.run(ask())


def test_closing_tells_those_who_still_wait(llm: LLM) -> None:
    async def ask() -> object:
        async with AsyncLLM(llm) as served:
            asked = asyncio.create_task(text_of(served, "It was", LONG))
            while not llm.engine.num_unfinished:
                await asyncio.sleep(0.001)
        (told,) = await asyncio.gather(asked, return_exceptions=True)
        return told

    assert isinstance(asyncio.run(ask()), UnavailableError)
    assert not llm.engine.has_work
    llm.engine.check_integrity()


def test_the_llm_is_its_own_again_after_it(llm: LLM) -> None:
    async def ask() -> None:
        async with AsyncLLM(llm) as served:
            with pytest.raises(RequestError, match="an AsyncLLM has this LLM"):
                llm.generate("It was", SHORT)
            with pytest.raises(RequestError, match="an AsyncLLM has this LLM"):
                await AsyncLLM(llm).__aenter__()
            assert await text_of(served, "It was")
        with pytest.raises(RequestError, match="not open"):
            await text_of(served, "It was")

    asyncio.run(ask())
    asyncio.run(ask())
    assert llm.generate("It was", SHORT)[0].text


def test_another_event_loop_may_ask_too(llm: LLM) -> None:
    async def ask() -> list[str]:
        async with AsyncLLM(llm) as served:

            def elsewhere(prompt: str) -> str:
                return asyncio.run(text_of(served, prompt))

            there = [asyncio.to_thread(elsewhere, prompt) for prompt in PROMPTS[:4]]
            here = [text_of(served, prompt) for prompt in PROMPTS[4:8]]
            return await asyncio.gather(*there, *here)

    assert asyncio.run(ask()) == [one.text for one in llm.generate(PROMPTS[:8], SHORT)]


def test_a_chat(llm: LLM) -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "It was"}]

    async def ask() -> str:
        async with AsyncLLM(llm) as served:
            return "".join([one.text async for one in served.stream_chat(messages, SHORT)])

    assert asyncio.run(ask()) == "".join(one.text for one in llm.stream_chat(messages, SHORT))


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise SystemExit(3)", "os._exit(3)"])
def test_an_interpreter_that_ends_in_the_middle_does_not_hang_or_crash(ending: str) -> None:
    code = f"""
import asyncio, os, sys
from paredown import LLM, AsyncLLM, SamplingParams
async def ask():
    served = await AsyncLLM(LLM(num_pages=200, num_threads=1)).__aenter__()
    async for _ in served.stream("It was", SamplingParams(max_tokens=1500, ignore_eos=True)):
        {ending}
asyncio.run(ask())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (3, "")
