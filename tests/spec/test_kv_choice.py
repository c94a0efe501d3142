"""What a user writes for keys and values, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import ConfigError
from paredown.spec.kv import KV_DTYPES
from paredown.spec.kv_choice import KVChoice, check_kv_choice, resolve_kv_choice


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("int8", "int8"),
        (["fp8"] * 4, "fp8"),
        ("int4, first2=bf16, last1=fp8", ("bf16", "bf16", "int4", "fp8")),
        ("int4,1-2=bf16", ("int4", "bf16", "bf16", "int4")),
        ("int4,3=int8", ("int4", "int4", "int4", "int8")),
        ("int4,first4=bf16,1=int8", ("bf16", "int8", "bf16", "bf16")),
        ("int4,first2=bf16,last2=bf16", "bf16"),
        ("bf16,int8,int8,int4", ("bf16", "int8", "int8", "int4")),
        (("bf16", "int8", "int8", "int4"), ("bf16", "int8", "int8", "int4")),
        ("fp8-static,last1=bf16", ("fp8-static", "fp8-static", "fp8-static", "bf16")),
    ],
)
def test_layers_get_what_is_written(choice: KVChoice, expected: object) -> None:
    assert resolve_kv_choice(choice, 4) == expected


@given(
    default=st.sampled_from(KV_DTYPES),
    exceptions=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(KV_DTYPES)), max_size=5
    ),
)
def test_later_parts_win(default: str, exceptions: list[tuple[int, int, str]]) -> None:
    expected = [default] * 10
    parts = [default]
    for one, other, dtype in exceptions:
        low, high = min(one, other), max(one, other)
        expected[low : high + 1] = [dtype] * (high + 1 - low)
        parts.append(f"{low}-{high}={dtype}")
    found = resolve_kv_choice(",".join(parts), 10)
    assert ((found,) * 10 if isinstance(found, str) else found) == tuple(expected)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("int2", "unknown format"),
        ("", "unknown format"),
        ([], "does not say"),
        ("int4,first2=int3", "unknown format"),
        ("first2=bf16", "does not say"),
        ("int4,bf16,first2=bf16", "does not say"),
        ("int4,middle=bf16", "does not say"),
        ("int4,first=bf16", "does not say"),
        ("int4,-1=bf16", "does not say"),
        ("int4,1-=bf16", "does not say"),
    ],
)
def test_what_makes_no_sense_is_refused_without_a_model(choice: KVChoice, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_kv_choice(choice)


@pytest.mark.parametrize(
    "choice",
    [
        "int4,4=bf16",
        "int4,first5=bf16",
        "int4,last5=bf16",
        "int4,first0=bf16",
        "int4,2-1=bf16",
        "int4,2-4=bf16",
        "bf16,int4",
        ["bf16"] * 5 + ["int4"],
        ["bf16"],
        ["int4", "0=bf16", "1=bf16", "2=bf16"],
    ],
)
def test_layers_that_are_not_there_are_refused(choice: KVChoice) -> None:
    with pytest.raises(ConfigError, match=r"no such layers|[1246] formats"):
        resolve_kv_choice(choice, 4)
