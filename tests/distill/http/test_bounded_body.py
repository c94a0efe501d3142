"""A body is kept whole up to 16 MiB, and refused beyond."""

import pytest

from paredown.distill.http.bounded_body import BoundedBody, LongBodyError
from paredown.units import MEBI


def test_a_body_is_whole_up_to_its_limit() -> None:
    body = BoundedBody()
    pieces = [b"a" * (8 * MEBI), b"b" * (8 * MEBI), b""]
    for piece in pieces:
        body.add(piece)
    assert body.data == b"".join(pieces)
    with pytest.raises(LongBodyError, match="more than 16 MiB"):
        body.add(b"c")
