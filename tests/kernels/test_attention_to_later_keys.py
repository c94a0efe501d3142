"""Attention of whole texts, whose queries see later keys, and relative positions: against a float64
reference, and the same bits side by side and alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.kernels.isa import supported_isas
from paredown.spec.kv import PAGE_SIZE
from references.attention import (
    BORDERS,
    KV_DTYPES,
    assert_close,
    random_attention,
    run_slices,
)

ISAS = supported_isas()


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("num_tokens", BORDERS)
def test_queries_that_see_later_keys_agree_around_the_borders(dtype: str, num_tokens: int) -> None:
    """Of whole texts, with tokens at their ends that nobody sees."""
    case = random_attention(np.random.default_rng(num_tokens), dtype, num_tokens=num_tokens)
    for num_keys in {num_tokens, max(1, num_tokens - 5)}:
        assert_close(replace(case, num_keys=num_keys), start=max(0, num_tokens - 40))


@settings(max_examples=40, deadline=None)
@given(
    dtype=st.sampled_from(KV_DTYPES),
    head_dim=st.integers(1, 6).map(lambda n: 16 * n),
    heads_per_kv=st.integers(1, 3),
    num_tokens=st.integers(1, 150),
    window=st.sampled_from([0, 1, 7, 16, 50, 64, 100]),
    max_distance=st.sampled_from([0, 1, 5, 20, 128]),
    is_causal=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_relative_positions_and_windows_on_both_sides_agree_with_the_reference(
    dtype: str,
    head_dim: int,
    heads_per_kv: int,
    num_tokens: int,
    window: int,
    max_distance: int,
    is_causal: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    case = random_attention(
        rng,
        dtype,
        num_tokens=num_tokens,
        heads_per_kv=heads_per_kv,
        head_dim=head_dim,
        window=window,
    )
    biases = rng.normal(size=(case.q_THD.shape[1], 2 * max_distance + 1)).astype(np.float32)
    assert_close(
        replace(
            case,
            num_keys=None if is_causal else num_tokens,
            relative_HD=biases if max_distance else None,
        )
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("window", [0, 90])
def test_texts_have_the_same_bits_side_by_side_and_alone(isa: str, window: int) -> None:
    rng = np.random.default_rng(5)
    biases = rng.normal(size=(4, 41)).astype(np.float32)
    cases, first = [], 0
    for num_tokens in (700, 3, 64, 130, 1):
        num_pages = -(-num_tokens // PAGE_SIZE)
        pages = np.arange(first, first + num_pages, dtype=np.int32)
        case = random_attention(rng, "bf16", num_tokens=num_tokens, window=window, pages=pages)
        cases.append(replace(case, num_keys=num_tokens, relative_HD=biases))
        first += num_pages
    core = cases[-1].core(isa, num_threads=3, num_pages=first)
    for case in cases:
        case.write(core)
    together = run_slices(core, [(case, 0, case.num_tokens) for case in cases])
    row = 0
    for case in cases:
        alone = run_slices(case.core(isa), [(case, 0, case.num_tokens)])
        assert np.array_equal(together[row : row + case.num_tokens], alone)
        row += case.num_tokens
