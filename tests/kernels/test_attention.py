"""Attention over pages against a float64 reference, and the same bits however it is cut."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.kernels import _core
from paredown.kernels.isa import supported_isas
from paredown.spec.kv import PAGE_SIZE
from references.attention import (
    BORDERS,
    FP8_GRID,
    KV_DTYPES,
    AttentionCase,
    Floats,
    assert_close,
    random_attention,
    round_fp8,
    run_slices,
    stored,
    tolerance_of,
)

ISAS = supported_isas()


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("num_tokens", BORDERS)
def test_agrees_with_the_reference_around_the_borders(dtype: str, num_tokens: int) -> None:
    case = random_attention(np.random.default_rng(num_tokens), dtype, num_tokens=num_tokens)
    assert_close(case, start=max(0, num_tokens - 40))


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(KV_DTYPES),
    head_dim=st.integers(1, 16).map(lambda n: 16 * n),
    num_kv_heads=st.integers(1, 3),
    heads_per_kv=st.integers(1, 8),
    num_tokens=st.integers(1, 150),
    window=st.sampled_from([0, 1, 7, 16, 50, 64, 100]),
    seed=st.integers(0, 2**32 - 1),
)
def test_agrees_with_the_reference_for_any_shape(
    dtype: str,
    head_dim: int,
    num_kv_heads: int,
    heads_per_kv: int,
    num_tokens: int,
    window: int,
    seed: int,
) -> None:
    case = random_attention(
        np.random.default_rng(seed),
        dtype,
        num_tokens=num_tokens,
        num_kv_heads=num_kv_heads,
        heads_per_kv=heads_per_kv,
        head_dim=head_dim,
        window=window,
    )
    assert_close(case)


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_a_window_over_many_chunks(dtype: str) -> None:
    for window in (600, 1030):
        case = random_attention(np.random.default_rng(7), dtype, num_tokens=1700, window=window)
        assert_close(case, start=1650)


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("num_sinks", [1, 4, 16, 70, 512])
def test_sinks_are_seen_with_queries_of_their_own(dtype: str, num_sinks: int) -> None:
    for num_tokens, window in ((40, 7), (700, 90), (1700, 600)):
        case = random_attention(
            np.random.default_rng(num_sinks),
            dtype,
            num_tokens=num_tokens,
            window=window,
            head_dim=48,
        )
        case = replace(case, num_sinks=num_sinks)
        assert_close(case, start=num_tokens - 20)
        assert_close(case, start=max(0, num_sinks - 3) if num_tokens == 700 else 0)


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("soft_cap", [0.2, 1.5, 50.0])
def test_scores_are_capped(dtype: str, soft_cap: float) -> None:
    """Over several chunks, in a window, and those of sinks too."""
    for num_tokens, window, num_sinks in ((90, 0, 0), (1100, 0, 0), (700, 90, 4)):
        case = random_attention(
            np.random.default_rng(11), dtype, num_tokens=num_tokens, window=window, head_dim=48
        )
        case.q_THD[:] *= 4
        case = replace(case, num_sinks=num_sinks, soft_cap=soft_cap)
        assert_close(case, start=num_tokens - 20)


@pytest.mark.parametrize("isa", ISAS)
def test_a_cap_bounds_whatever_the_scores_are(isa: str) -> None:
    """A score as large as floats get weighs e^(2 cap) times as much as its opposite."""
    case = random_attention(
        np.random.default_rng(2), "fp32", num_tokens=2, num_kv_heads=1, heads_per_kv=1
    )
    case.q_THD[:], case.k_TKD[0], case.k_TKD[1] = 1e15, 1e15, -1e15
    case.v_TKD[0], case.v_TKD[1] = 1, 0
    output = run_slices(replace(case, soft_cap=1.0).core(isa), [(case, 1, 2)])
    np.testing.assert_allclose(output, 1 / (1 + np.exp(-2.0)), rtol=1e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_instruction_sets_agree(isa: str, dtype: str) -> None:
    case = random_attention(np.random.default_rng(3), dtype, num_tokens=700, head_dim=64)
    slices = [(case, 660, 700)]
    np.testing.assert_allclose(
        run_slices(case.core(isa), slices),
        run_slices(case.core("generic"), slices),
        rtol=1e-5,
        atol=1e-5,
    )


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_same_bits_alone_in_any_batch_chunking_and_on_any_threads(data: st.DataObject) -> None:
    isa = data.draw(st.sampled_from(ISAS))
    dtype = data.draw(st.sampled_from(KV_DTYPES))
    shape = {
        "num_kv_heads": data.draw(st.integers(1, 2)),
        "heads_per_kv": data.draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8])),
        "head_dim": data.draw(st.sampled_from([16, 48, 64])),
        "window": data.draw(st.sampled_from([0, 0, 19, 64, 555])),
    }
    num_sinks = data.draw(st.sampled_from([0, 0, 4, 16, 100]))
    soft_cap = data.draw(st.sampled_from([0.0, 0.7]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    lengths = data.draw(
        st.lists(st.one_of(st.integers(1, 150), st.integers(500, 1100)), min_size=1, max_size=4)
    )
    num_pages = [-(-length // PAGE_SIZE) for length in lengths]
    shuffled = rng.permutation(sum(num_pages)).astype(np.int32)
    own = np.split(shuffled, np.cumsum(num_pages)[:-1])
    cases = [
        replace(
            random_attention(rng, dtype, num_tokens=length, pages=pages, **shape),
            num_sinks=num_sinks,
            soft_cap=soft_cap,
        )
        for length, pages in zip(lengths, own, strict=True)
    ]
    together = cases[0].core(isa, num_threads=3, num_pages=sum(num_pages))
    for case in cases[1:]:
        case.write(together)
    begins = [max(0, case.num_tokens - data.draw(st.integers(1, 90))) for case in cases]
    ends = [data.draw(st.integers(b + 1, c.num_tokens)) for b, c in zip(begins, cases, strict=True)]
    output = run_slices(together, list(zip(cases, begins, ends, strict=True)))
    row = 0
    for case, begin, end in zip(cases, begins, ends, strict=True):
        alone = run_slices(case.core(isa, num_pages=sum(num_pages)), [(case, begin, end)])
        assert alone.tobytes() == output[row : row + end - begin].tobytes()
        single = run_slices(together, [(case, end - 1, end)])
        assert single[0].tobytes() == alone[-1].tobytes()
        row += end - begin


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_same_bits_when_threads_share_a_long_context(isa: str, dtype: str) -> None:
    case = random_attention(
        np.random.default_rng(5), dtype, num_tokens=2600, num_kv_heads=1, heads_per_kv=4
    )
    slices = [(case, 2599, 2600)]
    expected = run_slices(case.core(isa), slices)
    for num_threads in (2, 3, 5):
        assert run_slices(case.core(isa, num_threads), slices).tobytes() == expected.tobytes()
    assert run_slices(case.core(isa, 2), [(case, 2500, 2600)])[-1].tobytes() == expected.tobytes()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_later_tokens_of_a_page_leave_no_trace(isa: str, dtype: str) -> None:
    """Whatever an earlier owner left behind a sequence's end is masked to exactly nothing."""
    rng = np.random.default_rng(9)
    case = random_attention(rng, dtype, num_tokens=70)
    clean = run_slices(case.core(isa), [(case, 60, 70)])
    for poison in (np.nan, np.inf, -np.inf, 3e38):
        size = (10, case.k_TKD.shape[1] * case.k_TKD.shape[2])
        bad = np.full(size, poison, dtype=np.float32)
        core = case.core(isa)
        core.write(case.pages, 70, bad, bad)
        assert run_slices(core, [(case, 60, 70)]).tobytes() == clean.tobytes()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_extreme_scores(isa: str, dtype: str) -> None:
    case = random_attention(np.random.default_rng(2), dtype, num_tokens=600)
    for factor in (0.0, 1e-30, 1e6, 1e15):
        q = (case.q_THD * np.float32(factor)).astype(np.float32)
        scaled = AttentionCase(
            dtype=dtype,
            window=0,
            q_THD=q,
            k_TKD=case.k_TKD,
            v_TKD=case.v_TKD,
            pages=case.pages,
            sink_q_THD=q,
        )
        output = run_slices(scaled.core(isa), [(scaled, 500, 600)])
        assert np.isfinite(output).all()
        if factor < 1:
            tolerance = tolerance_of(isa, dtype)
            np.testing.assert_allclose(output, scaled.expected(500), rtol=tolerance, atol=tolerance)
        else:  # one key takes nearly all
            close = np.abs(output - scaled.expected(500)).max(axis=-1) < 1e-3
            assert close.mean() > 0.95


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_keys_and_values_of_zero(dtype: str) -> None:
    case = random_attention(np.random.default_rng(2), dtype, num_tokens=90)
    case.k_TKD[:] = 0
    case.v_TKD[3::4] = 0
    assert_close(case)
    case.v_TKD[:] = 0
    for isa in ISAS:
        assert not run_slices(case.core(isa), [(case, 0, 90)]).any()


def read_values(dtype: str, isa: str, values: Floats, scale: float = 1.0) -> Floats:
    """A page gives these back for the values of a token and head: a single key has the weight 1."""
    core = _core.Attention(isa, 1, dtype, 1, 1, len(values), 0, 1)
    core.set_scales([1.0, scale])
    page = np.zeros(1, dtype=np.int32)
    core.write(page, 0, np.ones((1, len(values)), np.float32), values[None])
    output = np.empty((1, len(values)), dtype=np.float32)
    starts, lengths = np.zeros(1, np.int32), np.ones(1, np.int32)
    offsets = np.array([0, 1], np.int32)
    core.run(starts, lengths, offsets, page, np.ones((1, len(values)), np.float32), output)
    return output[0]


@pytest.mark.parametrize("isa", ISAS)
def test_every_number_of_fp8_is_given_back(isa: str) -> None:
    grid = np.concatenate([FP8_GRID, -FP8_GRID, [448.0, 0.0]]).astype(np.float32)
    assert len(grid) == 256
    for scale in (1.0, 2.0**-20):
        np.testing.assert_array_equal(
            read_values("fp8-static", isa, grid * np.float32(scale), scale), grid * scale
        )
    # The largest of a token is 448, so that its own scale is 1.
    np.testing.assert_array_equal(read_values("fp8", isa, grid), grid)


@pytest.mark.parametrize("isa", ISAS)
def test_numbers_between_two_of_fp8_go_to_the_nearest(isa: str) -> None:
    rng = np.random.default_rng(8)
    middles = (FP8_GRID[1:] + FP8_GRID[:-1]) / 2
    x = np.concatenate(
        [
            middles,
            np.nextafter(middles.astype(np.float32), np.float32(0)),
            np.nextafter(middles.astype(np.float32), np.float32(999)),
            2.0 ** rng.uniform(-12, 9, 1024 - 3 * len(middles)),
        ]
    ).astype(np.float32)
    x *= rng.choice([-1, 1], x.size).astype(np.float32)
    for part in x.reshape(4, 256):
        np.testing.assert_array_equal(read_values("fp8-static", isa, part), round_fp8(part))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("dtype", "low", "high"), [("int8", -128, 127), ("fp8", -448, 448)])
def test_what_lies_beyond_a_static_scale_is_its_last_number(
    isa: str, dtype: str, low: float, high: float
) -> None:
    x = np.array([1e3, -1e3, 3e38, -3e38, np.inf, -np.inf, np.nan, 0.0] * 2, np.float32)
    for scale in (2.0**-100, 2.0**-9, 1.0):
        given = read_values(f"{dtype}-static", isa, x, scale)
        expected = np.array([high, low, high, low, high, low, low, 0.0] * 2) * scale
        np.testing.assert_array_equal(given, expected)


def test_scales_of_another_number_of_heads_are_refused() -> None:
    core = _core.Attention("", 1, "fp8-static", 2, 2, 16, 0, 1)
    with pytest.raises(ValueError, match=r"\[keys, values\]\[kv heads\]"):
        core.set_scales([1.0, 1.0])


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_codes_stay_within_half_a_step(dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(50, 2, 64)).astype(np.float32)
    step = np.abs(x).max(axis=-1, keepdims=True) / (127 if dtype == "int8" else 8)
    error = np.abs(stored(dtype, x) - x)
    # The largest of the other sign is cut off at 7 of 8 steps.
    assert (error <= step * (0.6 if dtype == "int8" else 1.1)).all()
    assert error.mean() < 0.3 * step.mean()


def test_bad_arguments_are_refused() -> None:
    case = random_attention(np.random.default_rng(0), "bf16", num_tokens=20)
    core = case.core("")
    with pytest.raises(ValueError, match="kv_dtype 'int2' is unknown"):
        _core.Attention("", 1, "int2", 2, 1, 16, 0, 1)
    with pytest.raises(ValueError, match="do not fit"):
        _core.Attention("", 1, "bf16", 2, 1, 24, 0, 1)
    with pytest.raises(ValueError, match="number of sinks"):
        _core.Attention("", 1, "bf16", 2, 1, 16, 0, 1, 513)
    sinks = _core.Attention("", 1, "bf16", 1, 1, 16, 0, 1, 4)
    row, zero = np.zeros((1, 16), np.float32), np.zeros(1, np.int32)
    with pytest.raises(ValueError, match="queries of their own"):
        sinks.run(zero, zero + 1, np.array([0, 1], np.int32), zero, row, row)
    with pytest.raises(ValueError, match="too few pages"):
        run_slices(core, [(case, 10, 20), (random_attention_of_no_pages(case), 0, 20)])
    with pytest.raises(ValueError, match="a page is unknown"):
        core.write(np.array([5], dtype=np.int32), 0, *[np.zeros((1, 64), dtype=np.float32)] * 2)
    with pytest.raises(ValueError, match="negative"):
        core.write(np.array([0], dtype=np.int32), -1, *[np.zeros((1, 64), dtype=np.float32)] * 2)


def random_attention_of_no_pages(case: AttentionCase) -> AttentionCase:
    return replace(case, pages=np.empty(0, dtype=np.int32))
