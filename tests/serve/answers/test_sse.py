"""Streams, and those whose client goes."""

import asyncio

import pytest

from paredown.serve.answers.sse import DONE, encode_event, event_stream

EVENTS = [{"number": number} for number in range(3)]


def run_stream(num_taken: int) -> tuple[list[bytes], int]:
    """What a client got that takes `num_taken` messages, and how often the stream was closed."""
    bodies, closed = list[bytes](), list[int]()

    async def events():
        for event in EVENTS:
            yield event

    has_gone = asyncio.Event()

    async def receive():
        await has_gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if len(bodies) == num_taken:
            has_gone.set()
            await asyncio.sleep(100)
        bodies.append(message.get("body", b""))

    stream = event_stream(events(), close=lambda: closed.append(1))
    asyncio.run(stream({"type": "http"}, receive, send))
    return bodies, len(closed)


@pytest.mark.parametrize("num_taken", [0, 1, 3])
def test_a_client_that_goes_ends_its_stream(num_taken):
    bodies, num_closed = run_stream(num_taken)
    assert len(bodies) == num_taken
    assert num_closed == 1


def test_a_client_that_reads_gets_all():
    bodies, num_closed = run_stream(100)
    assert bodies == [b"", *map(encode_event, EVENTS), DONE, b""]
    assert num_closed == 1
