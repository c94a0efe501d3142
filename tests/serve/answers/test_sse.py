"""Streams, and those whose client goes."""

import asyncio

import pytest

from paredown.serve.answers.choices_format import DONE
from paredown.serve.answers.event import Event, encode_events
from paredown.serve.answers.sse import event_stream

EVENTS = [Event.of({"number": number}) for number in range(3)]


def run_stream(num_taken: int) -> tuple[list[bytes], int]:
    """Returns what a client got that takes `num_taken` messages, and how often the stream was
    closed."""
    bodies, closed = list[bytes](), list[int]()

    async def events():
        for event in EVENTS:
            yield [event]
        yield [DONE]

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
    told = [b'data: {"number":%d}\n\n' % number for number in range(3)]
    assert bodies == [b"", *told, b"data: [DONE]\n\n", b""]
    assert num_closed == 1


def test_events_of_a_batch_are_written_together_and_may_have_names():
    events = [Event.of("ä\n", name="said"), Event("[DONE]")]
    assert encode_events(events).decode() == 'event: said\ndata: "ä\\n"\n\ndata: [DONE]\n\n'
