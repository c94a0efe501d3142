"""XXH64 in the core, against its specification written out slowly."""

import numpy as np
import pytest

from paredown.kernels import _core

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
MASK = (1 << 64) - 1


def rotate(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & MASK


def step(lane: int, word: int) -> int:
    return rotate((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes) -> int:
    """github.com/Cyan4973/xxHash, doc/xxhash_spec.md, seed 0."""
    rest = data
    if len(data) < 32:
        value = P5
    else:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while len(rest) >= 32:
            for i in range(4):
                lanes[i] = step(lanes[i], int.from_bytes(rest[8 * i : 8 * i + 8], "little"))
            rest = rest[32:]
        counts = (1, 7, 12, 18)
        value = sum(rotate(lane, n) for lane, n in zip(lanes, counts, strict=True)) & MASK
        for lane in lanes:
            value = ((value ^ step(0, lane)) * P1 + P4) & MASK
    value = (value + len(data)) & MASK
    while len(rest) >= 8:
        value ^= step(0, int.from_bytes(rest[:8], "little"))
        value, rest = (rotate(value, 27) * P1 + P4) & MASK, rest[8:]
    if len(rest) >= 4:
        value ^= int.from_bytes(rest[:4], "little") * P1 & MASK
        value, rest = (rotate(value, 23) * P2 + P3) & MASK, rest[4:]
    for byte in rest:
        value = rotate(value ^ byte * P5 & MASK, 11) * P1 & MASK
    value = (value ^ value >> 33) * P2 & MASK
    value = (value ^ value >> 29) * P3 & MASK
    return value ^ value >> 32


def core_hash(data: bytes) -> int:
    return _core.hash_chunks(np.frombuffer(data, np.uint8), 1 << 20, 1)[0]


@pytest.mark.parametrize(
    ("text", "expected"), [(b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)]
)
def test_known_values(text: bytes, expected: int) -> None:
    assert xxh64(text) == expected == core_hash(text)


def test_every_length_hashes_as_specified() -> None:
    data = np.random.default_rng(0).integers(0, 256, 200, dtype=np.uint8).tobytes()
    for length in range(1, len(data) + 1):
        assert core_hash(data[:length]) == xxh64(data[:length]), length


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_chunks_are_hashed_one_by_one(num_threads: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, 1000, dtype=np.uint8)
    expected = [xxh64(data[start : start + 96].tobytes()) for start in range(0, 1000, 96)]
    assert _core.hash_chunks(data, 96, num_threads) == expected


def test_a_chunk_of_nothing_is_refused() -> None:
    assert _core.hash_chunks(np.zeros(0, np.uint8), 1, 1) == []
    with pytest.raises(ValueError, match="chunk"):
        _core.hash_chunks(np.zeros(4, np.uint8), 0, 1)
