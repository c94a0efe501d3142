"""The arithmetic of the table, on numbers that can be checked by hand."""

import pytest

from benchmarks.cases import OUTPUT_FORMATS, Bar, all_cases
from benchmarks.figures import Limit, decode_bytes, mbu, mfu, rates, rival, verdict


def test_ratios_are_made_round_by_round_against_the_best_median() -> None:
    ours = [20.0, 30.0, 10.0]
    peers = {"slow": [1.0, 1.0, 1.0], "best": [10.0, 10.0, 10.0], "spiky": [99.0, 1.0, 1.0]}
    found = rival(ours, peers)
    assert found is not None
    assert found.best_peer == "best"
    assert (found.ratio.median, found.ratio.min, found.ratio.max) == (2.0, 1.0, 3.0)


def test_without_peers_there_is_no_ratio() -> None:
    assert rival([1.0], {}) is None


def test_rates_mbu_and_mfu() -> None:
    assert rates(64, [2.0, 4.0]) == [32.0, 16.0]
    assert mbu([10.0, 20.0], 5, [100.0, 100.0]) == [0.5, 1.0]
    # 2 * 3 weights * 10 tokens/s = 60 of 120 operations per second.
    assert mfu([10.0], 3, [120.0]) == [0.5]


def test_a_limit_is_the_best_of_its_readings_and_their_mean_over_time() -> None:
    # The same 60 bytes in 1 s, 2 s and 3 s: 180 in 6 s.
    assert Limit.of([60.0, 30.0, 20.0]) == Limit(best=60.0, mean=pytest.approx(30.0))


def test_a_step_reads_the_weights_once_and_each_sequence() -> None:
    found = decode_bytes(
        weight_bytes=1000, kv_token_bytes=10, prompt_tokens=6, num_steps=8, num_sequences=2
    )
    assert found == 1000 + 2 * 10 * 10


@pytest.mark.parametrize(
    ("bar", "figures", "expected"),
    [
        (Bar(), (2.0, 0.9, None), None),
        (Bar(min_ratio=1.5), (1.5, None, None), True),
        (Bar(min_ratio=1.5), (1.49, 1.0, None), False),
        (Bar(min_ratio=1.5), (None, 1.0, None), False),
        (Bar(min_ratio=1.5, min_utilization=0.5), (2.0, 0.4, None), False),
        (Bar(min_ratio=1.5, min_utilization=0.5), (2.0, 0.5, None), True),
        (Bar(max_seconds=1.0), (None, None, 0.9), True),
        (Bar(max_seconds=1.0), (None, None, 1.1), False),
    ],
)
def test_a_bar_is_reached_when_all_it_asks_is_there(bar, figures, expected) -> None:
    ratio, utilization, seconds = figures
    assert verdict(bar, ratio=ratio, utilization=utilization, seconds=seconds) is expected


def test_cases_have_names_of_their_own_and_formats_that_exist() -> None:
    cases = all_cases({})
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        prompts = case.prompts(32000)
        assert len(prompts) == case.num_sequences
        assert all(len(set(prompt)) > 1 or len(prompt) == 1 for prompt in prompts)


def test_the_output_format_is_one_parameter() -> None:
    cases = all_cases({"int4-g32": "bf16"})
    outputs = {case.variant.format: case.variant.output_format for case in cases}
    assert outputs == OUTPUT_FORMATS | {"int4-g32": "bf16", "bf16": "bf16"}
