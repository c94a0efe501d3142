import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.engine.packed_logprobs import PackedLogprobs
from paredown.executors.sampler import Logprobs, TokenLogprob

TOKENS = st.builds(TokenLogprob, st.integers(0, 2**31 - 1), st.floats(allow_nan=False))
ROWS = st.lists(st.builds(Logprobs, chosen=TOKENS, top=st.lists(TOKENS, max_size=4)), max_size=6)


@given(ROWS, ROWS)
def test_what_was_packed_comes_out(first, more):
    packed = PackedLogprobs(first)
    packed.extend(PackedLogprobs(more))
    rows = [*first, *more]
    assert list(packed) == rows
    assert len(packed) == len(rows)
    assert packed[1:] == rows[1:]
    assert packed.num_tokens == sum(1 + len(row.top) for row in rows)
    for i, row in enumerate(rows):
        token_ids, logprobs = packed.row(i)
        told = [row.chosen, *row.top]
        assert list(zip(token_ids, logprobs, strict=True)) == [tuple(one) for one in told]
        assert packed[i - len(rows)] == row
    with pytest.raises(IndexError):
        packed[len(rows)]


def test_it_is_small():
    rows = [Logprobs(TokenLogprob(1, -0.5), [TokenLogprob(2, -1.5)] * 20)] * 1000
    packed = PackedLogprobs(rows)
    arrays = (packed._token_ids, packed._logprobs, packed._ends)
    assert sum(map(sys.getsizeof, arrays)) < 1000 * (21 * 12 + 4) * 1.3
