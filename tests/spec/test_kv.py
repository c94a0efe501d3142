"""Bytes of keys and values, counted bit by bit, and what layers are kept in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_specs import specs
from fakes.specs import gated
from paredown.errors import ConfigError
from paredown.spec.kv import (
    KV_DTYPES,
    PAGE_SIZE,
    STATIC_KV_DTYPES,
    KVDType,
    KVSpec,
    check_kv_dtype,
    token_bytes,
)
from paredown.spec.model import ModelSpec

DTYPES = (*KV_DTYPES, *STATIC_KV_DTYPES)
# Of a number, and of a token's scale for the key or the value of a head.
BITS = {
    "bf16": (16, 0),
    "fp32": (32, 0),
    "int8": (8, 16),
    "int4": (4, 16),
    "fp8": (8, 16),
    "int8-static": (8, 0),
    "fp8-static": (8, 0),
}


def test_every_format_is_counted() -> None:
    assert set(DTYPES) == set(BITS)
    assert not set(KV_DTYPES) & set(STATIC_KV_DTYPES)


@given(specs(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_page_has_the_bits_of_each_number_in_it(spec: ModelSpec, data: st.DataObject) -> None:
    dtypes = tuple(data.draw(st.sampled_from(DTYPES)) for _ in spec.layers)
    num_bits = 0
    for layer, dtype in zip(spec.layers, dtypes, strict=True):
        each, scale = BITS[dtype]
        for _ in range(2 * PAGE_SIZE * layer.attention.num_kv_heads):
            num_bits += layer.attention.head_dim * each + scale
    assert KVSpec(num_pages=3, dtype=dtypes).page_bytes(spec) * 8 == num_bits
    for dtype in DTYPES:
        alike = KVSpec(num_pages=1, dtype=(dtype,) * spec.num_layers)
        assert alike.page_bytes(spec) == KVSpec(num_pages=1, dtype=dtype).page_bytes(spec)


@pytest.mark.parametrize("dtype", DTYPES)
@given(head_dim=st.sampled_from([16, 64, 128, 256]))
def test_a_wide_head_takes_little_more_than_its_numbers(dtype: KVDType, head_dim: int) -> None:
    each, scale = BITS[dtype]
    assert 8 * token_bytes(dtype, head_dim) == head_dim * each + scale
    assert token_bytes(dtype, 2 * head_dim) <= 2 * token_bytes(dtype, head_dim)


@given(st.integers(1, 10**6))
def test_tokens_are_pages_of_16(num_pages: int) -> None:
    assert KVSpec(num_pages=num_pages).num_tokens == 16 * num_pages


@pytest.mark.parametrize("num_formats", [0, 2, 4])
def test_each_layer_has_one_format(num_formats: int) -> None:
    kv = KVSpec(num_pages=1, dtype=("int8",) * num_formats)
    with pytest.raises(ConfigError, match=f"{num_formats} formats, 3 layers"):
        kv.page_bytes(gated())
    assert KVSpec(num_pages=1, dtype="fp8").layer_dtypes(3) == ("fp8",) * 3


def test_an_unknown_format_is_refused_wherever_it_stands() -> None:
    for dtypes in ("int2", ("bf16", "int2")):
        with pytest.raises(ConfigError, match="unknown format of keys and values"):
            KVSpec(num_pages=1, dtype=dtypes)  # type: ignore[arg-type]
    for dtype in DTYPES:
        check_kv_dtype(dtype)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("bf16", "bf16"),
        ("int4", "int4 and scales"),
        ("int8-static", "int8-static"),
        (("int4", "int4", "int4"), "int4 and scales"),
        (("bf16", "int4", "int4"), "(1 bf16 + 2 int4 and scales)"),
    ],
)
def test_it_is_named_by_what_layers_are_kept_in(dtype: KVDType, name: str) -> None:
    assert KVSpec(num_pages=1, dtype=dtype).name(3) == name
