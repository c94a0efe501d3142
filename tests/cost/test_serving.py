"""Times of a prompt and a batch, on a made-up machine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.specs import changed, gated
from fakes.step_costs import PerToken
from paredown.cost.serving import BatchLoad, prompt_steps, serving_times, ttft_s
from paredown.cost.step_cost import chunk_pairs
from paredown.errors import ConfigError

SPEC = gated(hidden_size=256, head_dim=64, intermediate_size=768, max_positions=4096)


@pytest.mark.parametrize("length", [1, 511, 512, 513, 2000])
@pytest.mark.parametrize("window", [None, 100])
def test_a_prompt_is_cut_as_the_engine_cuts_it(length: int, window: int | None) -> None:
    spec = changed(SPEC, sliding_window=window)
    steps = prompt_steps(spec, length)
    assert [one.num_tokens for one in steps] == [512] * (length // 512) + (
        [length % 512] if length % 512 else []
    )
    assert [one.num_logits for one in steps] == [0] * (len(steps) - 1) + [1]
    assert sum(one.attention_pairs for one in steps) == chunk_pairs(0, length)
    if window is not None:
        assert sum(one.windowed_pairs[0] for one in steps) == chunk_pairs(0, length, window)
    assert ttft_s(PerToken(1.0), spec, length) == length + len(steps)


def test_rates_are_tokens_over_seconds() -> None:
    times = serving_times(PerToken(2.0), BatchLoad(batch=6, prompt_tokens=8, context=9), SPEC)
    assert times.ttft_s == 10
    assert times.tpot_s == 8
    assert times.decode_tokens_per_s == 6 / 8
    assert times.prefill_tokens_per_s == 8 / 10


@pytest.mark.parametrize("field", ["batch", "prompt_tokens", "context"])
@pytest.mark.parametrize("value", [0, -3, 10**10])
def test_an_absurd_workload_is_refused(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=field.replace("_", "-")):
        BatchLoad(**{field: value})


def test_a_workload_beyond_the_context_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"5,000 tokens, 4,096 positions"):
        BatchLoad(context=5000).check(SPEC)


@given(st.integers(1, 3000), st.integers(1, 700), st.sampled_from([(), (100,), (7, 900)]))
@settings(max_examples=60, deadline=None)
def test_steps_of_a_prompt_are_all_of_it_once(
    length: int, max_step_tokens: int, windows: tuple[int, ...]
) -> None:
    spec = SPEC if not windows else changed(SPEC, sliding_window=windows[0])
    steps = prompt_steps(spec, length, max_step_tokens)
    assert sum(one.num_tokens for one in steps) == length
    assert max(one.num_tokens for one in steps) == min(length, max_step_tokens)
    assert sum(one.attention_pairs for one in steps) == chunk_pairs(0, length)
    assert steps[-1].kv_tokens_read == length
    for field in ("num_logits", "num_first_tokens"):
        assert [getattr(one, field) for one in steps] == [0] * (len(steps) - 1) + [1]
    for number, window in enumerate(spec.windows):
        total = sum(one.windowed_pairs[number] for one in steps)
        assert total == chunk_pairs(0, length, window)


@given(st.integers(1, 2000), st.integers(1, 64), st.floats(0.1, 10))
@settings(max_examples=40, deadline=None)
def test_rates_and_times_are_two_words_for_the_same(length: int, batch: int, fixed: float) -> None:
    batch_load = BatchLoad(batch=batch, prompt_tokens=length, context=100)
    found = serving_times(PerToken(fixed), batch_load, SPEC)
    assert found.ttft_s * found.prefill_tokens_per_s == pytest.approx(length)
    assert found.tpot_s * found.decode_tokens_per_s == pytest.approx(batch)
    assert found.tpot_s == pytest.approx(fixed + batch)
    assert found.ttft_s == pytest.approx(ttft_s(PerToken(fixed), SPEC, length))
    more = ttft_s(PerToken(fixed), SPEC, length + 1)
    assert more > found.ttft_s
    whole = ttft_s(PerToken(fixed), SPEC, length, max_step_tokens=length)
    assert whole == pytest.approx(fixed + length)


def test_the_ends_of_what_makes_sense() -> None:
    for field in ("batch", "prompt_tokens", "context"):
        for value in (1, 10**9):
            assert getattr(BatchLoad(**{field: value}), field) == value
    BatchLoad(prompt_tokens=4096, context=4096, batch=10**9).check(SPEC)
    with pytest.raises(ConfigError, match="--prompt-tokens"):
        BatchLoad(prompt_tokens=4097, context=1).check(SPEC)
