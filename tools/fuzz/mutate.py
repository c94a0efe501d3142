"""Mutates inputs at random: any bytes, and JSON by its structure."""

import json
import random
from collections.abc import Sequence

# The largest input. Limits are tested with inputs of 1 MB.
MAX_BYTES = 1 << 20
# Numbers at which counts, offsets and sizes tend to go wrong.
_NUMBERS = (0, 1, 2, 7, 31, 32, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
_WIDE = (2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
# Valid but unusual pieces of JSON.
_PIECES = (
    "null", "true", "-1", "0", "1", "2147483647", "4294967296", "9223372036854775808", "0.5",
    "-0.0", "1e308", "1e999", "NaN", "-Infinity", '""', '"\\ud800"', '"\\u0000"', '"(a+)+$"',
    '"{{ x }}"', "[]", "{}", "[[]]", '{"a": {"b": 1}}', '"int4"', '"float16"',
)  # fmt: skip


class Mutator:
    """Mutates inputs with one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def changed(self, corpus: Sequence[bytes], *, is_json: bool) -> bytes:
        """Returns an input of the corpus with some mutations."""
        rng = self.random
        data = rng.choice(corpus)
        for _ in range(1 << rng.randrange(4)):
            if len(data) > MAX_BYTES:
                break
            if is_json and rng.random() < 0.7:
                data = self._json_change(data, rng.choice(corpus))
            else:
                data = self._bytes_change(data, rng.choice(corpus))
        return data[:MAX_BYTES]

    def _bytes_change(self, data: bytes, other: bytes) -> bytes:
        rng = self.random
        if not data:
            return rng.randbytes(8)
        place = rng.randrange(len(data))
        match rng.randrange(8):
            case 0:
                return _put(data, place, bytes([data[place] ^ (1 << rng.randrange(8))]))
            case 1:
                return _put(data, place, rng.randbytes(1))
            case 2:
                width = rng.choice((1, 2, 4, 8))
                number = rng.choice(_NUMBERS + _WIDE) % (1 << (8 * width))
                return _put(data, place, number.to_bytes(width, "little"))
            case 3:
                return data[:place] + data[place + rng.randrange(1, 17) :]
            case 4:
                return data[:place] + rng.randbytes(rng.randrange(1, 9)) + data[place:]
            case 5:
                start = rng.randrange(len(other) + 1)
                return _put(data, place, other[start : start + rng.randrange(1, 64)])
            case 6:
                piece = data[place : place + rng.randrange(1, 64)]
                return data[:place] + piece * rng.randrange(1, 64) + data[place:]
        return data[: place + 1]

    def _json_change(self, data: bytes, other: bytes) -> bytes:
        """Replaces, removes or duplicates a value, or takes one from another input."""
        try:
            value = json.loads(data)
            given = json.loads(other)
        except (ValueError, RecursionError):
            return self._bytes_change(data, other)
        places = _places(value)
        if not places:
            return self._piece().encode()
        holder, key = self.random.choice(places)
        marker = '"\\u0001here\\u0001"'
        match self.random.randrange(6):
            case 0:
                _delete(holder, key)
                return _dumped(value)
            case 1:
                if others := _places(given):
                    other_holder, other_key = self.random.choice(others)
                    _set(holder, key, _get(other_holder, other_key))
                return _dumped(value)
            case 2 if isinstance(holder, dict):
                holder[f"{key}x"] = holder.pop(str(key))
                return _dumped(value)
            case 3 if isinstance(holder, list):
                holder *= self.random.choice((2, 3, 300)) if len(data) < MAX_BYTES // 256 else 2
                return _dumped(value)
        _set(holder, key, json.loads(marker))
        return _dumped(value).replace(marker.encode(), self._piece().encode(), 1)

    def _piece(self) -> str:
        rng = self.random
        match rng.randrange(24):
            case 0:
                return "[" * 3000 + "]" * 3000
            case 1:
                return "9" * rng.choice((30, 400, 4200, 6000))
            case 2:
                return json.dumps("x" * rng.choice((300, 70_000)))
            case 3:
                return '{"a": 1, "a": 2}'
            case 4:
                return str(rng.choice(_NUMBERS + _WIDE))
            case 5:
                return f"{rng.uniform(-10, 10):.3}"
        return rng.choice(_PIECES)


def _put(data: bytes, place: int, piece: bytes) -> bytes:
    return data[:place] + piece + data[place + len(piece) :]


Holder = dict[str, object] | list[object]


def _get(holder: Holder, key: str | int) -> object:
    return holder[str(key)] if isinstance(holder, dict) else holder[int(key)]


def _set(holder: Holder, key: str | int, value: object) -> None:
    if isinstance(holder, dict):
        holder[str(key)] = value
    else:
        holder[int(key)] = value


def _delete(holder: Holder, key: str | int) -> None:
    if isinstance(holder, dict):
        del holder[str(key)]
    else:
        del holder[int(key)]


def _dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def _places(value: object) -> list[tuple[Holder, str | int]]:
    """Returns every place of a value in its holder, except in very deep ones."""
    found: list[tuple[Holder, str | int]] = []
    waiting: list[object] = [value]
    while waiting and len(found) < 20_000:
        holder = waiting.pop()
        if isinstance(holder, dict):
            found += [(holder, key) for key in holder]
            waiting += holder.values()
        elif isinstance(holder, list):
            found += [(holder, index) for index in range(len(holder))]
            waiting += holder
    return found
