"""Streams a JSON document while it is written, if it is too long to write at once."""

import json
from collections.abc import AsyncIterator, Callable, Mapping

from paredown.serve.answers.piece_stream import PieceStream

# Made once: json.dumps makes one at each call, which takes longer than to encode an event.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def json_stream(
    pieces: AsyncIterator[list[str]],
    *,
    close: Callable[[], None],
    headers: Mapping[str, str] | None = None,
) -> PieceStream:
    """Returns the response that sends the document."""
    return PieceStream(
        _encoded(pieces), media_type="application/json", close=close, headers=headers
    )


async def _encoded(pieces: AsyncIterator[list[str]]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        yield "".join(piece).encode()


def to_json(value: object) -> str:
    """Returns `value` in the format of starlette's JSONResponse."""
    return _ENCODER.encode(value)
