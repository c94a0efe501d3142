"""Operations against multiply-adds and numbers that a slow walk over a model counts one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_specs import specs
from fakes.specs import changed, gated, plain, silu_experts
from paredown.cli.verbs.inspect_formulas import formulas, symbolic_loads
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import Operation, expert_letter, experts_asked, load_letters
from paredown.cost.operations import operations
from paredown.cost.polynomial import Polynomial, Ratio
from paredown.cost.sizes import Sizes, letter_values
from paredown.cost.step_cost import (
    StepLoad,
    chunk_kv_tokens,
    chunk_pairs,
    decode_load,
    prefill_load,
)
from paredown.spec.experts import split_role
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

# Every second layer.
EXPERTS = {"num": 4, "num_per_token": 2, "size": 8, "is_normalized": True}
MODELS = {
    "gated": gated(),
    "plain": plain(),
    "window": gated(sliding_window=5),
    "tied": gated(tied_embeddings=True),
    "experts": gated(experts=silu_experts(**EXPERTS, shared_size=12, step=2), num_layers=4),
    "all experts": gated(experts=silu_experts(**EXPERTS)),
}
TEXTBOOK = ModelFormats(activation_bytes=2)


def counted_multiply_adds(
    spec: ModelSpec, chunks: list[tuple[int, int]], num_logits: int
) -> dict[str, int]:
    """One at a time, as loops over tokens, outputs and inputs would do them."""
    found: dict[str, int] = {}

    def add(name: str, out: int, columns: int) -> None:
        found.setdefault(name, 0)
        for _ in range(out):
            found[name] += columns

    (window,) = spec.windows or (None,)
    suffix = "" if window is None else ", window"
    for start, num_tokens in chunks:
        for position in range(start, start + num_tokens):
            for layer in spec.layers:
                shapes = layer.active_shapes(spec.hidden_size)
                shapes |= layer.router_shapes(spec.hidden_size)
                for role, (out, columns) in shapes.items():
                    add(operation_name(role), out, columns)
                for _ in range(layer.attention.num_heads):
                    for key in range(position + 1):
                        if window is None or position - key < window:
                            add(f"scores{suffix}", 1, layer.attention.head_dim)
                            add(f"weighted sum{suffix}", layer.attention.head_dim, 1)
    for _ in range(num_logits):
        add("logits", spec.vocab_size, spec.hidden_size)
    return found


def operation_name(role: str) -> str:
    """Of a role: all experts' gates are one operation."""
    if role == "shared_gate":
        return "shared router"
    owner, own = split_role(role)
    return {"": own, "shared": f"shared {own}"}.get(owner, f"experts' {own}")


def load_of(chunks: list[tuple[int, int]], num_logits: int, windows: tuple[int, ...]) -> StepLoad:
    return StepLoad(
        num_tokens=sum(length for _, length in chunks),
        num_logits=num_logits,
        num_requests=len(chunks),
        attention_pairs=sum(chunk_pairs(*chunk) for chunk in chunks),
        kv_tokens_read=sum(chunk_kv_tokens(*chunk) for chunk in chunks),
        windowed_pairs=tuple(
            sum(chunk_pairs(*chunk, window) for chunk in chunks) for window in windows
        ),
        windowed_kv_tokens_read=tuple(
            sum(chunk_kv_tokens(*chunk, window) for chunk in chunks) for window in windows
        ),
    )


@pytest.mark.parametrize("name", MODELS)
def test_flops_are_twice_the_multiply_adds_that_loops_count(name: str) -> None:
    spec, chunks = MODELS[name], [(0, 7), (9, 1), (3, 4)]
    load = load_of(chunks, 3, spec.windows)
    letters = load_letters(load, spec)
    counted = {
        one.name: one.count * one.flops.value(letters)
        for one in operations(spec, ModelFormats())
        if one.flops.terms
    }
    expected = counted_multiply_adds(spec, chunks, 3)
    assert counted == {role: 2 * number for role, number in expected.items()}


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 50)))
def test_pairs_and_keys_are_those_of_a_mask(start: int, length: int, window: int | None) -> None:
    seen = [
        {key for key in range(query + 1) if window is None or query - key < window}
        for query in range(start, start + length)
    ]
    assert chunk_pairs(start, length, window) == sum(map(len, seen))
    assert chunk_kv_tokens(start, length, window) == len(set().union(*seen))


def test_bytes_are_everything_read_and_written_once() -> None:
    spec = gated()
    by_name = {one.name: one for one in operations(spec, ModelFormats())}
    load = load_letters(prefill_load(5, 3), spec)
    up = by_name["up"]
    assert up.weight_bytes.value(load) == 2 * 24 * 16
    assert up.activation_bytes.value(load) == 4 * 5 * (16 + 24)
    scores = by_name["scores"]
    assert scores.kv_bytes.value(load) == 8 * spec.layers[0].attention.kv_size * 2
    assert scores.activation_bytes.value(load) == 5 * spec.layers[0].attention.query_size * 4
    assert by_name["embedding"].bytes.value(load) == 5 * 16 * (2 + 4)


def test_quantized_weights_and_keys_take_their_scales_along() -> None:
    spec = gated(hidden_size=64, head_dim=32)
    int4 = WeightSpec(dtype="int4", group_size=32, symmetric=False)
    formats = ModelFormats(linear=int4, output=int4, kv_dtype="int8")
    by_name = {one.name: one for one in operations(spec, formats)}
    load = load_letters(decode_load(1, 10), spec)
    # 4 bits, and for 32 of them a scale of 16 bits and a zero point of 4.
    assert by_name["q"].weight_bytes.value(load) == 128 * 64 * (4 + 20 / 32) / 8
    assert by_name["scores"].kv_bytes.value(load) == 10 * 2 * (32 + 2)
    assert by_name["q"].unit == "int8"


def test_inputs_of_two_codes_take_twice_the_arithmetic_and_the_same_bytes() -> None:
    spec = gated(hidden_size=64, head_dim=32)
    found = {}
    for activations in ("int8_group", "int16_group"):
        linear = WeightSpec(dtype="int6", group_size=32, activations=activations)
        found[activations] = {
            one.name: one for one in operations(spec, ModelFormats(linear=linear))
        }
    load = load_letters(prefill_load(5, 3), spec)
    one, two = found["int8_group"]["q"], found["int16_group"]["q"]
    assert two.unit == one.unit == "int8"
    assert two.flops.value(load) == 2 * one.flops.value(load)
    assert two.bytes.value(load) == one.bytes.value(load)
    assert found["int16_group"]["scores"].flops == found["int8_group"]["scores"].flops


def test_the_textbook_table_of_a_plain_model() -> None:
    """The intensities that every course shows for a layer with multi-head attention."""
    table = {name: (flops, size, ratio) for name, _, flops, size, ratio in _prefill(plain())}
    assert str(table["q"][2]) == "LD/(2L + D)"
    assert str(table["k"][2]) == str(table["v"][2]) == str(table["o"][2]) == "LD/(2L + D)"
    assert str(table["q"][0]) == "2LD²"
    assert str(table["scores"][0]) == "2L²D"
    assert str(table["scores"][2]) == "LD/(LH + 2D)"
    assert str(table["up"][2]) == "LDF/(LD + LF + DF)"
    decode = {name: str(ratio) for name, _, _, _, ratio in formulas(plain(), TEXTBOOK)["decode"]}
    assert decode["q"] == "BD/(2B + D)"
    assert decode["scores"] == "SD/(SH + SD + D)"


def _prefill(spec: ModelSpec) -> list[tuple[str, int, Polynomial, Polynomial, Ratio]]:
    return formulas(spec, TEXTBOOK)["prefill"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_formulas_with_numbers_for_letters_are_the_numbers(name: str, phase: str) -> None:
    spec = MODELS[name]
    values = letter_values(spec) | {"L": 11, "B": 3, "S": 17, "W": sum(spec.windows)}
    load = {
        letter: value.value(values | {"X": 3}) for letter, value in symbolic_loads()[phase].items()
    }
    in_letters = operations(spec, TEXTBOOK, Sizes.in_letters(spec), fused=False)
    in_numbers = operations(spec, TEXTBOOK, fused=False)
    for letters, numbers in zip(in_letters, in_numbers, strict=True):
        assert letters.name == numbers.name
        symbols, values["X"] = symbolic_loads()[phase], 3
        assert letters.flops.replace(symbols).value(values) == numbers.flops.value(load)
        assert letters.bytes.replace(symbols).value(values) == pytest.approx(
            numbers.bytes.value(load)
        )


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 64),
    context=st.integers(1, 4096),
    more=st.integers(1, 64),
    window=st.one_of(st.none(), st.integers(1, 4096)),
)
def test_nothing_costs_less_in_a_larger_batch_or_a_longer_context(
    batch: int, context: int, more: int, window: int | None
) -> None:
    spec = changed(gated(), sliding_window=window)
    base = _figures(spec, decode_load(batch, context, spec.windows))
    for load in (
        decode_load(batch + more, context, spec.windows),
        decode_load(batch, context + more, spec.windows),
    ):
        larger = _figures(spec, load)
        assert all(x >= y for x, y in zip(larger, base, strict=True))


def _figures(spec: ModelSpec, load: StepLoad) -> list[float]:
    letters = load_letters(load, spec)
    counted: list[Operation] = operations(spec, ModelFormats())
    return [
        figure for one in counted for figure in (one.flops.value(letters), one.bytes.value(letters))
    ]


def test_experts_that_have_a_token() -> None:
    """One token asks two of four; many ask all; the mean is that of random choices."""
    experts = silu_experts(**EXPERTS).experts
    assert experts_asked(experts, 1) == 2
    assert experts_asked(experts, 1000) == pytest.approx(4)
    pairs = [{a, b} for a in range(4) for b in range(a)]
    both = [len(x | y) for x in pairs for y in pairs]
    assert experts_asked(experts, 2) == sum(both) / len(both)
    by_name = {one.name: one for one in operations(MODELS["experts"], ModelFormats())}
    load = load_letters(decode_load(1, 9), MODELS["experts"])
    assert by_name["experts' up"].weight_bytes.value(load) == 2 * 8 * 16 * 2
    assert by_name["router"].weight_bytes.value(load) == 4 * 4 * 16


@given(
    specs(),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 15)), min_size=1, max_size=3),
    st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_layers_that_differ_are_all_counted(
    spec: ModelSpec, chunks: list[tuple[int, int]], num_logits: int
) -> None:
    """Twice the weights that each token passes, and the numbers that it meets."""
    multiply_adds = num_logits * spec.vocab_size * spec.hidden_size
    for layer in spec.layers:
        shapes = layer.active_shapes(spec.hidden_size) | layer.router_shapes(spec.hidden_size)
        passed = sum(out * columns for out, columns in shapes.values())
        for start, length in chunks:
            pairs = chunk_pairs(start, length, layer.attention.window)
            multiply_adds += length * passed + 2 * pairs * layer.attention.query_size
    letters = load_letters(load_of(chunks, num_logits, spec.windows), spec)
    counted = operations(spec, ModelFormats())
    assert sum(one.count * one.flops.value(letters) for one in counted) == 2 * multiply_adds
    sizes = {(one.mlp.size, one.has_experts and one.mlp.num) for one in spec.layers}
    if len(sizes) == len({one.mlp for one in spec.layers}):
        assert len({one.name for one in counted}) == len(counted), "names tell them apart"


@given(specs(), st.integers(1, 40), st.integers(0, 40), st.sampled_from([2, 4]))
@settings(max_examples=60, deadline=None)
def test_bytes_of_layers_that_differ(
    spec: ModelSpec, num_tokens: int, start: int, floats: int
) -> None:
    """Weights as many as there are where all experts are asked, keys and values as far as they are
    seen, and between operations what each reads and writes."""
    load = prefill_load(num_tokens, start, spec.windows)
    letters = load_letters(load, spec)
    for number, kind in enumerate(spec.expert_kinds):
        letters[expert_letter(number)] = float(kind.num)
    counted = operations(spec, ModelFormats(activation_bytes=floats))
    weights = 2 * spec.num_linear_parameters() + 4 * spec.num_router_parameters()
    weights += 2 * spec.vocab_size * spec.hidden_size + 2 * num_tokens * spec.hidden_size
    assert sum(one.count * one.weight_bytes.value(letters) for one in counted) == pytest.approx(
        weights
    )
    kv = 0
    for layer in spec.layers:
        seen = chunk_kv_tokens(start, num_tokens, layer.attention.window)
        kv += 2 * seen * layer.attention.kv_size * 2
    assert sum(one.count * one.kv_bytes.value(letters) for one in counted) == pytest.approx(kv)
    written = num_tokens * spec.hidden_size * floats
    written += spec.hidden_size * floats + spec.vocab_size * 4
    for layer in spec.layers:
        written += num_tokens * 2 * layer.attention.query_size * floats
        shapes = layer.active_shapes(spec.hidden_size) | layer.router_shapes(spec.hidden_size)
        written += sum(num_tokens * (out + columns) for out, columns in shapes.values()) * floats
    assert sum(one.count * one.activation_bytes.value(letters) for one in counted) == pytest.approx(
        written
    )


def test_scores_that_reach_memory_are_written_and_read() -> None:
    spec, load = gated(), prefill_load(6, 4)
    letters = load_letters(load, spec)
    fused, plain_ = (operations(spec, TEXTBOOK, fused=one) for one in (True, False))
    for one, other in zip(fused, plain_, strict=True):
        more = other.bytes.value(letters) - one.bytes.value(letters)
        scores_bytes = 4 * load.attention_pairs * 2
        assert more == (scores_bytes if one.kind == "attention" else 0)


@given(specs())
@settings(max_examples=40, deadline=None)
def test_one_layer_leaves_out_what_is_behind_its_keys(spec: ModelSpec) -> None:
    """The last one: its scores and sums, its output projection, its MLP or experts."""
    counted = operations(spec, ModelFormats())
    last = spec.layers[-1]
    behind = {one.name.partition(",")[0] for one in counted if one.num_asked_only}
    assert {"scores", "weighted sum", "o"} <= behind
    assert not behind & {"q", "k", "v", "embedding", "logits"}
    assert ("experts' up" in behind) == last.has_experts
    assert ("up" in behind) == (not last.has_experts)
    for name in ("scores", "o"):
        of_it = [one for one in counted if one.name.partition(",")[0] == name]
        assert sum(one.num_asked_only for one in of_it) == 1
        assert sum(one.count for one in of_it) == spec.num_layers
