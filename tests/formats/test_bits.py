"""Packing against the library's, bit for bit."""

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import (
    pack_to_int32,
    unpack_from_int32,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.formats.bits import num_words, pack_bits, unpack_bits

shapes = st.tuples(st.integers(1, 5), st.integers(1, 70))


@given(bits=st.integers(1, 8), shape=shapes, seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_words_equal_the_librarys_and_unpack_to_the_codes(bits, shape, seed) -> None:
    codes = np.random.default_rng(seed).integers(0, 1 << bits, shape).astype(np.uint8)
    words = pack_bits(codes, bits)
    signed = torch.from_numpy((codes.astype(int) - (1 << (bits - 1))).astype(np.int8))
    assert words.shape == (shape[0], num_words(shape[1], bits))
    assert np.array_equal(words, pack_to_int32(signed, bits).numpy())
    assert np.array_equal(unpack_bits(words, bits, shape[1]), codes)
    theirs = unpack_from_int32(torch.from_numpy(words), bits, torch.Size(shape))
    assert torch.equal(theirs, signed)


def test_the_first_code_has_the_lowest_bits() -> None:
    words = pack_bits(np.array([[1, 2, 3, 4, 5, 6, 7, 8]], np.uint8), 4)
    assert words.view(np.uint32).tolist() == [[0x87654321]]


def test_a_code_may_straddle_two_words() -> None:
    codes = np.zeros((1, 11), np.uint8)
    codes[0, 10] = 7
    assert pack_bits(codes, 3).view(np.uint32).tolist() == [[0xC0000000, 1]]
