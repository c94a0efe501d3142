import asyncio
import threading

import pytest

from paredown.engine.schedule.scheduler import QueueFullError
from paredown.serve.errors import ClientGoneError
from paredown.serve.intake import side_thread
from paredown.serve.intake.side_thread import SideThread


async def stay():
    await asyncio.sleep(100)


def test_shorter_work_goes_first_one_at_a_time():
    done, may_go_on = list[str](), threading.Event()

    async def ask() -> None:
        beside = SideThread("test")

        def work(name: str):
            def run(wanted) -> str:
                assert may_go_on.wait(10)
                done.append(name)
                return name

            return run

        sizes = {"first": 5, "long": 9, "short": 1, "middle": 4, "short too": 1}
        tasks = []
        for name, size in sizes.items():
            tasks.append(asyncio.ensure_future(beside.run(stay, size, work(name))))
            await asyncio.sleep(0.01)
        assert beside.num_waiting == 4
        may_go_on.set()
        assert await asyncio.gather(*tasks) == list(sizes)

    asyncio.run(ask())
    assert done == ["first", "short", "short too", "middle", "long"]


def test_what_it_raises_comes_to_who_asked_and_the_thread_goes_on():
    def fail(wanted) -> int:
        raise ZeroDivisionError

    async def ask() -> int:
        beside = SideThread("test")
        with pytest.raises(ZeroDivisionError):
            await beside.run(stay, 1, fail)
        return await beside.run(stay, 1, lambda wanted: 7)

    assert asyncio.run(ask()) == 7


def test_who_hangs_up_is_not_begun_and_the_turn_is_over_when_the_work_is():
    may_go_on, begun, gone = threading.Event(), list[int](), list[bool]()

    async def leave():
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    def work(number: int):
        def run(wanted) -> None:
            begun.append(number)
            assert may_go_on.wait(10)
            gone.append(wanted.is_gone)

        return run

    async def ask() -> None:
        beside = SideThread("test")
        tasks = [beside.run(leave, 1, work(i)) for i in range(3)]
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, ClientGoneError) for one in told)
        assert beside.num_waiting == 0
        last = asyncio.ensure_future(beside.run(stay, 1, work(3)))
        await asyncio.sleep(0.05)
        assert begun == [0]
        may_go_on.set()
        await last

    asyncio.run(ask())
    assert begun == [0, 3]
    assert gone == [True, False]


def test_so_many_may_wait(monkeypatch):
    monkeypatch.setattr(side_thread, "MAX_WAITING", 1)
    may_go_on = threading.Event()

    async def ask() -> None:
        beside = SideThread("test")
        work = [beside.run(stay, 1, lambda wanted: may_go_on.wait(10)) for _ in range(2)]
        tasks = [asyncio.ensure_future(one) for one in work]
        await asyncio.sleep(0.02)
        with pytest.raises(QueueFullError, match="test"):
            await beside.run(stay, 1, lambda wanted: None)
        may_go_on.set()
        await asyncio.gather(*tasks)
        assert await beside.run(stay, 1, lambda wanted: 3) == 3

    asyncio.run(ask())
