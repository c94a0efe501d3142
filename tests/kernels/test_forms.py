"""The tables of kernels: which form takes a layer, and what `doctor` says of them."""

from dataclasses import replace
from itertools import groupby, product

import numpy as np
import pytest

from drivers.native_linear import FORMS, ISAS, native_linear, source_of
from paredown.kernels import _core
from paredown.kernels.forms import BITMAPS, WEIGHTS, kernel_uses
from paredown.spec.kv import KV_DTYPES
from paredown.spec.weight import DTYPES, SHORT_BF16_ISAS
from references.blocks import random_rows
from references.linear import LinearCase, random_case, random_stepped_case

# Tokens on both sides of every border between forms.
TOKEN_COUNTS = (1, 2, 5, 9, 13, 16, 17, 33, 64, 129, 257, 600)
SHORT_FORMS = {
    "bf16 in 12 bits, decode in registers",
    "bf16 bitmap in 12 bits, expanded in registers",
}


def layers() -> list[LinearCase]:
    """Every kind with every reading of its input, with groups that fit what is decoded at once and
    that do not, an odd and an even number of panels, and columns that fill no tile."""
    rng = np.random.default_rng(0)
    cases = [
        random_case(
            rng, kind, shape, group_size=group, symmetric=symmetric, activations=activations
        )
        for (kind, activations), shape, group, symmetric in product(
            FORMS, ((90, 3072), (75, 3072), (90, 96)), (None, 32, 1536), (True, False)
        )
        if group is None or (group < shape[1] and (kind, activations) != ("fp8", "bf16"))
    ]
    cases.append(
        LinearCase(
            kind="q4_k",
            values_OI=random_rows(rng, "q4_k", 48, 512),
            group_size=512,
            activations="int8_group",
        )
    )
    return cases + [
        random_stepped_case(rng, (rows, 3072), group_size=32, activations=activations)
        for rows, activations in product((90, 75), ("int8_row", "int8_static"))
    ]


def bitmap_layers(isa: str) -> list[_core.Linear]:
    rng = np.random.default_rng(1)
    cases = [random_case(rng, kind, (90, 3072)) for kind in ("int8", "bf16")]
    sources = [replace(source_of(case), bitmap="always") for case in cases]
    return [_core.Linear(isa, 1, source.fields()) for source in sources]


@pytest.mark.parametrize("isa", ISAS)
def test_every_row_takes_some_layer_and_some_row_takes_every_layer(isa: str) -> None:
    names = [name for name, _ in _core.linear_forms(isa)]
    assert len(set(names)) == len(names)
    reached = {
        layer.form(num_tokens)
        for layer in (native_linear(case, isa) for case in layers())
        for num_tokens in TOKEN_COUNTS
    }
    reached |= {
        layer.form(num_tokens) for layer in bitmap_layers(isa) for num_tokens in TOKEN_COUNTS
    }
    # Other sets do not pack bf16 so; csrc/check/check_sets_agree.cpp runs these rows on them.
    unpacked = set() if isa in SHORT_BF16_ISAS else SHORT_FORMS
    assert reached == set(names) - unpacked


@pytest.mark.parametrize("isa", ISAS)
def test_codes_of_inputs_lie_as_the_tables_say(isa: str) -> None:
    layouts = dict(_core.linear_forms(isa))
    assert set(layouts.values()) <= {"rows", "interleaved", "pairs"}
    assert all(layouts[name] == "rows" for name in layouts if "in registers" in name)


@pytest.mark.parametrize("isa", ISAS)
def test_ranges_of_tokens_follow_each_other_without_a_gap(isa: str) -> None:
    uses = [use for use in kernel_uses(isa) if use.operation == "linear"]
    for _, rows in groupby(uses, lambda use: use.dtype):
        begin = 1
        for use in rows:
            first, _, last = use.tokens.partition("-")
            if use.tokens == "any" or first.endswith("+"):
                assert begin == (1 if use.tokens == "any" else int(first[:-1]))
                begin = 0  # nothing follows
            else:
                assert int(first) == begin
                begin = int(last or first) + 1
        assert begin == 0


@pytest.mark.parametrize("isa", ISAS)
def test_every_format_has_its_kernels(isa: str) -> None:
    uses = kernel_uses(isa)
    assert {spec.dtype for spec in WEIGHTS} == {
        dtype for dtype, traits in DTYPES.items() if traits.held_as is None
    }
    linear = {use.dtype for use in uses if use.operation == "linear"}
    bitmaps = {f"{spec.name} bitmap" for spec in BITMAPS}
    assert linear == {spec.name for spec in WEIGHTS} | bitmaps
    assert [use.dtype for use in uses if use.operation == "attention"] == list(KV_DTYPES)


@pytest.mark.parametrize("isa", ISAS)
def test_attention_multiplies_bytes_where_there_is_a_byte_product(isa: str) -> None:
    forms = {use.dtype: use.form for use in kernel_uses(isa) if use.operation == "attention"}
    in_bytes = isa not in ("generic", "avx2", "neon")
    for dtype in ("int8", "int4"):
        assert ("three bytes" in forms[dtype]) == in_bytes
    for dtype in ("bf16", "fp8"):
        assert ("AMX tiles" in forms[dtype]) == (isa == "amx")
    assert forms["fp32"] == "fp32 products"


def test_a_layer_of_no_tokens_has_no_form() -> None:
    case = random_case(np.random.default_rng(0), "fp32", (16, 32))
    with pytest.raises(ValueError, match="must be tokens"):
        native_linear(case, "generic").form(0)
