import asyncio

from starlette.responses import JSONResponse

from paredown.serve.answers.json_stream import json_stream, to_json


def run(num_taken: int) -> tuple[list[dict], int]:
    """Returns what a client got that left after `num_taken` messages, and how often the stream was
    closed."""
    messages, closed = list[dict](), list[int]()

    async def pieces():
        for piece in (["["], ["1,", "2"], ["]"]):
            yield piece

    async def receive():
        while len(messages) < num_taken:
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message):
        messages.append(message)
        await asyncio.sleep(0)

    stream = json_stream(pieces(), close=lambda: closed.append(1))
    asyncio.run(stream({"type": "http"}, receive, send))
    return messages, len(closed)


def test_the_document_comes_in_pieces_and_then_it_is_closed():
    messages, num_closed = run(100)
    assert messages[0]["status"] == 200
    assert (b"content-type", b"application/json") in messages[0]["headers"]
    assert not any(name == b"content-length" for name, _ in messages[0]["headers"])
    assert [one["body"] for one in messages[1:]] == [b"[", b"1,2", b"]", b""]
    assert [one["more_body"] for one in messages[1:]] == [True, True, True, False]
    assert num_closed == 1


def test_a_client_that_hangs_up_ends_it():
    messages, num_closed = run(2)
    assert len(messages) < 5
    assert num_closed == 1


def test_values_are_written_as_other_replies_are():
    value = {"a": [1, -9999.0, None, True, "é\n\"'"], "b": 1e-7}
    assert to_json(value).encode() == JSONResponse(value).body
