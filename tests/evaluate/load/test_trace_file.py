"""Traces: what is written in each format is read, and what is no trace is refused with its line."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.traces import traces
from paredown.errors import ConfigError
from paredown.evaluate.load.arrival import BLOCK_TOKENS, Arrival
from paredown.evaluate.load.trace_file import read_trace
from paredown.plan.trace import Trace

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
        (VIDUR + "nan,5,5\n", "line 4: nan is not a valid time"),
        (VIDUR + "-3,5,5\n", "line 4: -3 is not a valid time"),
        (VIDUR + "0.5,5,5\n", "line 4: a request comes before"),
        (AZURE + "yesterday,5,5\n", "line 4: .*yesterday"),
        (json.dumps(MOONCAKE[0]) + "\n{\n", "line 2: this is not JSON"),
        (json.dumps(MOONCAKE[0]) + "\n[1]\n", "line 2: this is not a JSON object"),
        (json.dumps(MOONCAKE[0] | {"hash_ids": [1]}), "line 1: 1 hash_ids for 1000 tokens"),
        (json.dumps(MOONCAKE[0] | {"hash_ids": 3}), "line 1: hash_ids is not a list"),
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


def as_azure(requests: tuple[Arrival, ...], start_s: int) -> str:
    begin = datetime(2023, 11, 16, tzinfo=UTC) + timedelta(seconds=start_s)
    lines = [
        f"{(begin + timedelta(seconds=one.at_s)).strftime('%Y-%m-%d %H:%M:%S.%f')}0,"
        f"{one.num_input_tokens},{one.num_output_tokens}"
        for one in requests
    ]
    return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines])


def as_vidur(requests: tuple[Arrival, ...], start_s: int) -> str:
    """With a column that nobody asked for."""
    lines = [
        f"{start_s + one.at_s},x,{one.num_output_tokens},{one.num_input_tokens}" for one in requests
    ]
    return "\n".join(["arrived_at,note,num_decode_tokens,num_prefill_tokens", *lines])


def as_mooncake(requests: tuple[Arrival, ...], start_s: int) -> str:
    return "\n".join(
        json.dumps(
            {
                "timestamp": 1000 * (start_s + one.at_s),
                "input_length": one.num_input_tokens,
                "output_length": one.num_output_tokens,
                "hash_ids": list(one.block_ids),
            }
        )
        for one in requests
    )


@given(traces(), st.integers(0, 10**6), st.booleans())
@settings(max_examples=40, deadline=None)
def test_what_was_written_is_read_whenever_it_began(
    tmp_path_factory: pytest.TempPathFactory, made: Trace, start_s: int, has_gaps: bool
) -> None:
    """Also with empty lines between; what has no blocks in its format has none."""
    path = tmp_path_factory.mktemp("traces") / "trace"
    for write, has_blocks in ((as_azure, False), (as_vidur, False), (as_mooncake, True)):
        text = write(made.requests, start_s)
        path.write_text(text.replace("\n", "\n\n") if has_gaps else text)
        found = read_trace(path)
        assert [one.at_s for one in found] == pytest.approx(
            [one.at_s for one in made.requests], abs=1e-6
        )
        for one, wanted in zip(found, made.requests, strict=True):
            assert one.num_input_tokens == wanted.num_input_tokens
            assert one.num_output_tokens == wanted.num_output_tokens
            assert one.block_ids == (wanted.block_ids if has_blocks else ())
        for number in (1, len(found)):
            assert read_trace(path, number) == found[:number]


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(1, 1), (512, 1), (513, 2), (1024, 2)])
def test_a_block_stands_for_so_many_tokens_of_a_prompt(
    num_tokens: int, num_blocks: int, tmp_path: Path
) -> None:
    def line(number: int) -> str:
        row = {"timestamp": 0, "input_length": num_tokens, "output_length": 1}
        return json.dumps(row | {"hash_ids": list(range(number))})

    assert read_trace(trace(tmp_path, line(num_blocks)))[0].block_ids == tuple(range(num_blocks))
    for wrong in {num_blocks - 1, num_blocks + 1} - {0}:
        with pytest.raises(ConfigError, match=f"{wrong} hash_ids for {num_tokens} tokens"):
            read_trace(trace(tmp_path, line(wrong)))
