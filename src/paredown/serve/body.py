"""The body of a request: read with limits, parsed as strict JSON."""

import asyncio

import pydantic_core
from starlette.requests import ClientDisconnect, Request

from paredown.serve.errors import ClientGoneError, HttpError

MAX_BODY_BYTES = 2_000_000
BODY_TIMEOUT_S = 30.0


async def read_json(request: Request) -> object:
    """Raises HttpError 408, 413, 415 or 400 (not JSON: also NaN, infinity, nesting bombs)."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HttpError(
            415, f"send JSON with the header Content-Type: application/json (saw: {content_type!r})"
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpError(415, "send the body without a Content-Encoding")
    body = await _read(request)
    try:
        parsed: object = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise HttpError(400, f"the body is not JSON: {error}", code="invalid_json") from error
    return parsed


async def _read(request: Request) -> bytes:
    stated = request.headers.get("content-length", "0")
    if not stated.isdecimal() or int(stated[:20]) > MAX_BODY_BYTES:
        raise _too_large(stated[:20])
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise _too_large(f"more than {MAX_BODY_BYTES}")
    except TimeoutError as error:
        raise HttpError(408, f"the body did not come within {BODY_TIMEOUT_S:.0f} s") from error
    except ClientDisconnect as error:
        raise ClientGoneError from error
    return bytes(body)


def _too_large(seen: str) -> HttpError:
    return HttpError(
        413, f"the body is too large: {seen} bytes, at most {MAX_BODY_BYTES}", code="body_too_large"
    )
