"""BoundedBody: what a server answers, up to a size."""

from paredown.units import MEBI

_MAX_BYTES = 16 * MEBI


class LongBodyError(ValueError):
    """The body is too long. Its text says so."""


class BoundedBody:
    """Is given a body in pieces; `data` has them all."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def data(self) -> bytes:
        return bytes(self._data)

    def add(self, piece: bytes) -> None:
        """Raises LongBodyError, so that the rest is not read."""
        self._data += piece
        if len(self._data) > _MAX_BYTES:
            raise LongBodyError(f"more than {_MAX_BYTES // MEBI} MiB")
