"""Reads the body of a request: size limits first, values counted as it arrives, then strict
JSON."""

import asyncio
from collections.abc import Iterator

import pydantic_core
from starlette.requests import ClientDisconnect, Request

from paredown.serve.errors import ClientGoneError, HttpError
from paredown.serve.intake.budget import Hold
from paredown.serve.intake.pacer import Pacer
from paredown.serve.intake.value_counts import ValueCounts, ValueLimits

MAX_BODY_BYTES = 2_000_000
BODY_TIMEOUT_S = 30.0
# Bodies up to this size are parsed at once, in less than a millisecond. Longer ones are counted
# first and parsed outside the event loop.
SHORT_BODY_BYTES = 16_384
COUNTED_BYTES = 65_536


async def read_body(request: Request, limits: ValueLimits, held: Hold, pacer: Pacer) -> bytes:
    """Reads the body. Raises HttpError 408, 413 or 415, 400 for one that holds too much, and
    QueueFullError where all current bodies together are too long."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HttpError(
            415,
            "send JSON with the header Content-Type: application/json "
            f"(saw: {content_type[:80]!r})",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpError(415, "send the body without a Content-Encoding")
    stated = request.headers.get("content-length", "0")
    if not stated.isdecimal() or int(stated[:20]) > MAX_BODY_BYTES:
        raise _too_large(stated[:20])
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _read(request, limits, held, pacer)
    except TimeoutError as error:
        raise HttpError(408, f"the body did not come within {BODY_TIMEOUT_S:.0f} s") from error
    except ClientDisconnect as error:
        raise ClientGoneError from error


def parse_json(body: bytes) -> object:
    """Parses JSON. Raises HttpError 400 for anything invalid, including NaN, infinity and excessive
    nesting."""
    try:
        parsed: object = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise HttpError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    return parsed


async def _read(request: Request, limits: ValueLimits, held: Hold, pacer: Pacer) -> bytes:
    body, counts = bytearray(), ValueCounts()
    num_counted = 0
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _too_large(f"more than {MAX_BODY_BYTES}")
        if len(body) <= SHORT_BODY_BYTES:
            continue
        held.add(len(body) - num_counted)
        for piece in _pieces(body, num_counted):
            counts.add(piece)
            if (excess := counts.excess(limits)) is not None:
                raise HttpError(
                    400, f"the body holds {excess}; send less at once", code="body_too_large"
                )
            # Unread data wait in the client: each turn of the loop reads from one long body,
            # however many there are.
            await pacer.turn()
        num_counted = len(body)
    return bytes(body)


def _pieces(body: bytearray, start: int) -> Iterator[bytes]:
    for first in range(start, len(body), COUNTED_BYTES):
        yield bytes(body[first : first + COUNTED_BYTES])


def _too_large(seen: str) -> HttpError:
    return HttpError(
        413, f"the body is too large: {seen} bytes, at most {MAX_BODY_BYTES}", code="body_too_large"
    )
