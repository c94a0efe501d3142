"""Where requests come from: batches, Poisson times, traces of real services."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from paredown.errors import ConfigError
from paredown.evaluate.load.arrival import (
    BLOCK_TOKENS,
    Arrival,
    Length,
    drawn,
    fit,
    poisson,
    together,
)
from paredown.evaluate.load.trace import read_trace

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n"
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,4808,10\n2.25,3180,8\n"
MOONCAKE = [
    {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 1500, "input_length": 600, "output_length": 9, "hash_ids": [0, 7]},
]


def trace(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


def test_a_prompt_has_its_length_and_no_other_like_it() -> None:
    one = Arrival(at_s=0, num_input_tokens=300, num_output_tokens=1)
    prompts = [one.prompt(500, (0, i, j)) for i in range(3) for j in range(3)]
    assert {len(prompt) for prompt in prompts} == {300}
    assert {min(prompt) >= 0 and max(prompt) < 500 for prompt in prompts} == {True}
    assert len({tuple(prompt[:16]) for prompt in prompts}) == 9
    assert one.prompt(500, (0, 1, 2)) == prompts[5]


def test_blocks_of_the_same_name_are_the_same_tokens() -> None:
    a = Arrival(at_s=0, num_input_tokens=1300, num_output_tokens=1, block_ids=(4, 5, 6))
    b = Arrival(at_s=0, num_input_tokens=1100, num_output_tokens=1, block_ids=(4, 5, 8))
    first, second = a.prompt(500, (1, 1)), b.prompt(500, (2, 2))
    assert (len(first), len(second)) == (1300, 1100)
    assert first[: 2 * BLOCK_TOKENS] == second[: 2 * BLOCK_TOKENS]
    assert first[2 * BLOCK_TOKENS :][:16] != second[2 * BLOCK_TOKENS :][:16]


def test_times_are_those_of_a_poisson_process() -> None:
    arrivals = poisson(together(4000, 3, 2), 20.0, seed=3)
    times = [one.at_s for one in arrivals]
    gaps = np.diff(times)
    assert times[0] == 0
    assert gaps.min() > 0
    # Of exponential gaps mean and standard deviation are 1 / rate; 4000 of them are 1.6 % off.
    assert statistics.fmean(gaps) == pytest.approx(1 / 20, rel=0.08)
    assert statistics.stdev(gaps) == pytest.approx(1 / 20, rel=0.08)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.08
    assert times == [one.at_s for one in poisson(arrivals, 20.0, seed=3)]
    assert times != [one.at_s for one in poisson(arrivals, 20.0, seed=4)]


def test_lengths_are_drawn_between_two_bounds() -> None:
    arrivals = drawn(2000, Length.parse("16-19"), Length.parse("7"), seed=0)
    assert {one.num_input_tokens for one in arrivals} == {16, 17, 18, 19}
    assert {one.num_output_tokens for one in arrivals} == {7}


@pytest.mark.parametrize("text", ["0", "", "-3", "5-4", "1-2-3", "1.5", "many"])
def test_a_senseless_length_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Length.parse(text)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_rate_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="rate"):
        poisson(together(2, 3, 2), rate, seed=0)


def test_what_a_model_cannot_hold_is_cut_and_counted() -> None:
    lengths = [(5, 5), (100, 5), (5, 100), (100, 100)]
    arrivals = [
        Arrival(at_s=i, num_input_tokens=a, num_output_tokens=b) for i, (a, b) in enumerate(lengths)
    ]
    fitted, num_cut = fit(arrivals, 20)
    found = [(one.num_input_tokens, one.num_output_tokens) for one in fitted]
    assert found == [(5, 5), (15, 5), (1, 19), (1, 19)]
    assert num_cut == 3
    assert [one.at_s for one in fitted] == [0, 1, 2, 3]


def test_every_kind_of_trace_is_read(tmp_path: Path) -> None:
    first, second = read_trace(trace(tmp_path, AZURE))
    assert (first.at_s, first.num_input_tokens, first.num_output_tokens) == (0, 374, 44)
    assert second.at_s == pytest.approx(4.314579, abs=1e-6)
    first, second = read_trace(trace(tmp_path, VIDUR))
    assert (first.at_s, second.at_s, second.num_input_tokens) == (0, 0.75, 3180)
    lines = "\n".join(map(json.dumps, MOONCAKE)) + "\n\n"
    first, second = read_trace(trace(tmp_path, lines))
    assert (second.at_s, second.num_output_tokens, second.block_ids) == (1.5, 9, (0, 7))
    assert first.prompt(99, (0,))[:BLOCK_TOKENS] == second.prompt(99, (1,))[:BLOCK_TOKENS]
    assert read_trace(trace(tmp_path, lines), 1) == [first]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no requests"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests"),
        ("num_prefill_tokens,num_decode_tokens\n5,6\n", "line 1: these are not the columns"),
        ('{"timestamp": 0, "input_length": 5}\n', "line 1: these are not the columns"),
        (VIDUR + "3.0,5\n", "line 4: there are not 3 columns"),
        (VIDUR + "3.0,many,5\n", "line 4: .*many"),
        (VIDUR + "3.0,0,5\n", "line 4: 0 tokens are too few"),
        (VIDUR + "3.0,5,-1\n", "line 4: -1 tokens are too few"),
        (VIDUR + "nan,5,5\n", "line 4: nan is no time"),
        (VIDUR + "-3,5,5\n", "line 4: -3 is no time"),
        (VIDUR + "0.5,5,5\n", "line 4: a request comes before"),
        (AZURE + "yesterday,5,5\n", "line 4: .*yesterday"),
        (json.dumps(MOONCAKE[0]) + "\n{\n", "line 2: this is no JSON"),
        (json.dumps(MOONCAKE[0]) + "\n[1]\n", "line 2: this is no JSON object"),
        (json.dumps(MOONCAKE[0] | {"hash_ids": [1]}), "line 1: 1 hash_ids for 1000 tokens"),
        (json.dumps(MOONCAKE[0] | {"hash_ids": 3}), "line 1: hash_ids is no list"),
        (json.dumps(MOONCAKE[0] | {"hash_ids": [1, "a"]}), "line 1: hash_ids are not all"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_trace(trace(tmp_path, text))


def test_a_trace_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("nowhere", "binary", ""):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_trace(tmp_path / name)
