import asyncio
import time

from paredown.serve.intake import pacer
from paredown.serve.intake.pacer import Breath, Pacer


def slow(num: int):
    for i in range(num):
        time.sleep(0.001)
        yield i


def test_all_items_come_in_their_order_in_pieces():
    async def ask() -> list[list[int]]:
        return [piece async for piece in Pacer().pieces(slow(20))]

    found = asyncio.run(ask())
    assert [one for piece in found for one in piece] == list(range(20))
    assert max(map(len, found)) <= 3


def test_one_piece_at_a_time_with_time_for_others_between():
    async def ask() -> tuple[int, list[int]]:
        one, turns = Pacer(), list[int]()

        async def take(number: int) -> None:
            async for _ in one.pieces(slow(10)):
                turns.append(number)

        num_others, is_over = 0, False

        async def others() -> None:
            nonlocal num_others
            while not is_over:
                num_others += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        await asyncio.gather(take(0), take(1))
        is_over = True
        await beside
        return num_others, turns

    num_others, turns = asyncio.run(ask())
    assert num_others > len(turns)
    # They take turns.
    assert turns[:6] in ([0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0])


def test_each_turn_of_the_loop_lets_one_go_on():
    async def ask() -> list[int]:
        one, num_turns, seen = Pacer(), 0, list[int]()

        async def count() -> None:
            nonlocal num_turns
            while len(seen) < 5:
                num_turns += 1
                await asyncio.sleep(0)

        async def wait() -> None:
            await one.turn()
            seen.append(num_turns)

        await asyncio.gather(count(), *(wait() for _ in range(5)))
        return seen

    seen = asyncio.run(ask())
    assert len(set(seen)) == len(seen)


def test_a_breath_is_taken_after_a_piece(monkeypatch):
    num_turns = 0

    async def count() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    async def ask() -> tuple[int, int]:
        beside = asyncio.ensure_future(count())
        monkeypatch.setattr(pacer, "PIECE_S", 100.0)
        await Breath().take()
        none = num_turns
        monkeypatch.setattr(pacer, "PIECE_S", 0.0)
        await Breath().take()
        beside.cancel()
        return none, num_turns

    assert asyncio.run(ask()) == (0, 1)
