"""A response that is made while it is sent has its headers, and is closed whatever happens."""

import asyncio

import pytest

from paredown.serve.answers.piece_stream import PieceStream


async def pieces(failure: Exception | None):
    yield b"a"
    if failure is not None:
        raise failure
    yield b"b"


def run_stream(failure: Exception | None = None) -> tuple[list[dict], list[int]]:
    sent, closed = [], []

    async def receive():
        await asyncio.sleep(100)

    async def send(message):
        sent.append(message)

    stream = PieceStream(
        pieces(failure), media_type="text/x", close=lambda: closed.append(1), headers={"x-y": "z"}
    )
    try:
        asyncio.run(stream({"type": "http"}, receive, send))
    finally:
        assert closed == [1]
    return sent, closed


def test_pieces_come_in_order_and_the_last_is_marked() -> None:
    start, *bodies = run_stream()[0]
    assert (b"x-y", b"z") in start["headers"]
    assert not [name for name, _ in start["headers"] if name == b"content-length"]
    assert [one["body"] for one in bodies] == [b"a", b"b", b""]
    assert [one["more_body"] for one in bodies] == [True, True, False]


def test_a_failure_is_raised_and_the_stream_closed() -> None:
    with pytest.raises(ZeroDivisionError):
        run_stream(ZeroDivisionError())
