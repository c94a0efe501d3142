"""Promise 1, Exact: a sequence's logits have the same bits alone, in any batch, in any chunking, on
any pages, number of threads and beside any neighbours."""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_executor import TINY, WEIGHT_SPECS, random_executor, random_linear
from fakes.specs import changed, silu_experts
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.kernels.linear_source import LinearSource
from paredown.kernels.native_model import NativeModel
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.context import Context
from paredown.spec.kv import (
    KV_DTYPES,
    PAGE_SIZE,
    STATIC_KV_DTYPES,
    KVDType,
    KVDTypes,
    KVScales,
    KVSpec,
)
from paredown.spec.model import LearnedPositions, ModelSpec
from paredown.spec.weight import WeightSpec

NUM_PAGES = 64
EXPERTS = {"num": 5, "num_per_token": 2, "is_normalized": True, "dense_layers": {1}}
SPECS: dict[str, ModelSpec] = {
    "rotary": TINY,
    "qk-norm": changed(TINY, qk_norm=True),
    "mqa": changed(TINY, num_kv_heads=1),
    "window": changed(TINY, sliding_window=21),
    # The second of three layers is dense.
    "experts": changed(
        TINY, num_layers=3, experts=silu_experts(size=32, shared_size=64, **EXPERTS)
    ),
    "learned": changed(
        TINY,
        positions=LearnedPositions(offset=2),
        norm="layer",
        gated=False,
        activation="gelu_tanh",
        num_kv_heads=4,
    ),
}


@dataclass(kw_only=True)
class Sequence:
    """A prompt computed chunk by chunk; `rows` collects the logits of every token."""

    token_ids: list[int]
    pages: list[int]
    chunks: list[int]
    num_done: int = 0
    rows: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def next_slice(self) -> SequenceSlice:
        length = min(self.chunks.pop(0), len(self.token_ids) - self.num_done)
        chunk = self.token_ids[self.num_done : self.num_done + length]
        part = SequenceSlice(
            token_ids=chunk, start=self.num_done, pages=self.pages, num_logits=length
        )
        self.num_done += length
        return part

    @property
    def is_done(self) -> bool:
        return self.num_done == len(self.token_ids)

    def logits(self) -> npt.NDArray[np.float32]:
        return np.concatenate(self.rows)


def run_together(executor: NativeExecutor, sequences: list[Sequence]) -> None:
    while running := [sequence for sequence in sequences if not sequence.is_done]:
        parts = [sequence.next_slice() for sequence in running]
        logits = executor.step(parts)
        row = 0
        for sequence, part in zip(running, parts, strict=True):
            sequence.rows.append(logits[row : row + part.num_logits].copy())
            row += part.num_logits


def alone_and_whole(executor: NativeExecutor, token_ids: list[int]) -> npt.NDArray[np.float32]:
    pages = list(range(-(-len(token_ids) // PAGE_SIZE)))
    sequence = Sequence(token_ids=token_ids, pages=pages, chunks=[len(token_ids)])
    run_together(executor, [sequence])
    return sequence.logits()


def random_tokens(rng: np.random.Generator, length: int) -> list[int]:
    return rng.integers(0, TINY.vocab_size, length).tolist()


@pytest.mark.parametrize("format_name", WEIGHT_SPECS)
@pytest.mark.parametrize("shape_name", SPECS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_same_bits_alone_whole_and_in_any_batch_and_chunking(
    shape_name: str, format_name: str, data: st.DataObject
) -> None:
    spec, weights = SPECS[shape_name], WEIGHT_SPECS[format_name]
    executor = random_executor(spec, weights, num_pages=NUM_PAGES, num_threads=2)
    single = random_executor(spec, weights, num_pages=NUM_PAGES, num_threads=1)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    lengths = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=5))
    shuffled = rng.permutation(NUM_PAGES).tolist()
    sequences = []
    for length in lengths:
        num_pages = -(-length // PAGE_SIZE)
        pages, shuffled = shuffled[:num_pages], shuffled[num_pages:]
        chunks = data.draw(st.lists(st.integers(1, 33), min_size=length, max_size=length))
        sequences.append(Sequence(token_ids=random_tokens(rng, length), pages=pages, chunks=chunks))
    run_together(executor, sequences)
    for sequence in sequences:
        expected = alone_and_whole(single, sequence.token_ids)
        assert np.isfinite(expected).all()
        assert np.array_equal(sequence.logits(), expected)


# Kernels change their form with the number of tokens: steps of one, and of every small number.
STEPS = {"one": [1] * 50, "each": list(range(1, 20))}


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("format_name", WEIGHT_SPECS)
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("shape_name", ["rotary", "experts"])
def test_same_bits_in_small_steps_on_every_instruction_set(
    isa: str,
    format_name: str,
    steps: list[int],
    shape_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    executor = random_executor(SPECS[shape_name], WEIGHT_SPECS[format_name], num_threads=2)
    token_ids = random_tokens(np.random.default_rng(0), sum(steps))
    pages = [9, 3, 60, 1, 17, 30, 2, 44, 5, 61, 12, 8]
    sequence = Sequence(token_ids=token_ids, pages=pages, chunks=steps.copy())
    run_together(executor, [sequence])
    assert np.array_equal(sequence.logits(), alone_and_whole(executor, token_ids))


# Rows of weights whose inputs have a scale for each group: 1 or 4 blocks long, or of whole rows;
# and of those whose inputs are bf16, which have none.
GROUPED = (
    WeightSpec(dtype="int4", group_size=32),
    WeightSpec(dtype="int4", group_size=32, symmetric=False),
    WeightSpec(dtype="int4", group_size=128),
    WeightSpec(dtype="int8"),
    WeightSpec(dtype="bf16"),
    WeightSpec(dtype="fp8"),
)


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("weights", GROUPED, ids=lambda weights: weights.name)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_same_bits_where_products_of_gate_and_up_become_inputs_at_once(
    isa: str, weights: WeightSpec, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do in steps of more than 64 or 256 tokens (csrc/kernels/linear/next_input.h)."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    spec = changed(TINY, hidden_size=128, head_dim=32, intermediate_size=384, max_positions=512)
    token_ids = random_tokens(np.random.default_rng(8), 301)
    executor = random_executor(spec, weights, num_threads=num_threads)
    expected = alone_and_whole(executor, token_ids)
    for chunks in ([5, 60, 60, 60, 60, 56], [30, 271], [101, 200]):
        sequence = Sequence(token_ids=token_ids, pages=list(range(19)), chunks=chunks)
        run_together(executor, [sequence])
        assert np.array_equal(sequence.logits(), expected)


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("down", GROUPED, ids=lambda weights: weights.name)
@pytest.mark.parametrize("others", GROUPED, ids=lambda weights: weights.name)
def test_same_bits_where_down_has_a_format_of_its_own(
    isa: str, down: WeightSpec, others: WeightSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    spec = changed(TINY, hidden_size=128, head_dim=32, intermediate_size=384, max_positions=512)

    def make_linear(
        rng: np.random.Generator, weights: WeightSpec, rows: int, columns: int
    ) -> LinearSource:
        own = down if columns == 384 else weights
        return random_linear(rng, own, rows, columns)

    token_ids = random_tokens(np.random.default_rng(9), 301)
    executor = random_executor(spec, others, num_threads=2, make_linear=make_linear)
    sequence = Sequence(token_ids=token_ids, pages=list(range(19)), chunks=[30, 60, 211])
    run_together(executor, [sequence])
    assert np.array_equal(sequence.logits(), alone_and_whole(executor, token_ids))


@pytest.mark.parametrize("format_name", ["fp32", "bf16", "int8", "int8-asym"])
def test_experts_of_sizes_that_fill_no_block(format_name: str) -> None:
    """Rows of the shared expert and of the others lie in the same memory, and are padded."""
    experts = silu_experts(size=16, shared_size=112, **EXPERTS)
    spec = changed(TINY, num_layers=3, intermediate_size=80, experts=experts)
    executor = random_executor(spec, WEIGHT_SPECS[format_name], num_threads=3)
    single = random_executor(spec, WEIGHT_SPECS[format_name], num_threads=1)
    token_ids = random_tokens(np.random.default_rng(3), 90)
    chunks = [1, 40, 1, 1, 30, 17]
    sequence = Sequence(token_ids=token_ids, pages=[9, 3, 60, 1, 17, 30], chunks=chunks)
    run_together(executor, [sequence])
    assert np.array_equal(sequence.logits(), alone_and_whole(single, token_ids))


PAGE_FORMATS: tuple[KVDTypes, ...] = (
    *KV_DTYPES,
    *STATIC_KV_DTYPES,
    ("int4", "bf16"),
    ("fp32", "fp8"),
)


@pytest.mark.parametrize("kv_dtype", PAGE_FORMATS, ids=str)
@pytest.mark.parametrize("window", [None, 300])
def test_same_bits_past_the_borders_of_chunks_for_every_page_format(
    kv_dtype: KVDTypes, window: int | None
) -> None:
    spec = changed(TINY, max_positions=1200, sliding_window=window)
    executors = [
        random_executor(
            spec, WEIGHT_SPECS["fp32"], num_pages=80, num_threads=threads, kv_dtype=kv_dtype
        )
        for threads in (3, 1)
    ]
    rng = np.random.default_rng(12)
    token_ids = random_tokens(rng, 1100)
    pages = rng.permutation(80).tolist()
    sequence = Sequence(token_ids=token_ids, pages=pages, chunks=[500, 11, 1, 1, 64, 400, 123])
    run_together(executors[0], [sequence])
    assert np.array_equal(sequence.logits(), alone_and_whole(executors[1], token_ids))


def test_what_a_page_held_before_does_not_leak() -> None:
    """A page's earlier owner may have left anything in it."""
    executor = random_executor(TINY, WEIGHT_SPECS["fp32"], num_pages=4)
    rng = np.random.default_rng(4)
    token_ids = random_tokens(rng, 20)
    clean = alone_and_whole(executor, token_ids)
    poisoned = random_executor(TINY, WEIGHT_SPECS["fp32"], num_pages=4)
    other = Sequence(token_ids=random_tokens(rng, 64), pages=[3, 2, 1, 0], chunks=[64])
    run_together(poisoned, [other])
    assert np.array_equal(alone_and_whole(poisoned, token_ids), clean)


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("floats", ["bf16", "fp8"])
@pytest.mark.parametrize("codes", ["int8", "int4"])
def test_codes_of_one_layer_leave_no_trace_in_another(
    isa: str, floats: KVDType, codes: KVDType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers share working memory, and codes read as bf16 may be NaN. One page, so that the others
    of a block are what was there before."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    token_ids = random_tokens(np.random.default_rng(1), 70)
    executor = random_executor(TINY, WEIGHT_SPECS["fp32"], kv_dtype=(floats, codes))
    clean = alone_and_whole(executor, token_ids[:9])
    assert np.isfinite(clean).all()
    alone_and_whole(executor, token_ids)
    assert np.array_equal(alone_and_whole(executor, token_ids[:9]), clean)


@pytest.mark.parametrize("format_name", ["fp32", "bf16", "int8", "int4-g32"])
def test_same_bits_on_any_threads_of_prefill_and_decode(format_name: str) -> None:
    """Steps of 65 tokens and more are prefill; plans change from step to step. Of a whole prompt
    threads share the tokens, not the weights."""
    token_ids = random_tokens(np.random.default_rng(2), 200)
    expected = alone_and_whole(random_executor(TINY, WEIGHT_SPECS[format_name]), token_ids)
    for num_threads, decode_threads in ((1, 3), (3, 1), (4, 2)):
        executor = random_executor(
            TINY,
            WEIGHT_SPECS[format_name],
            num_threads=num_threads,
            decode_threads=decode_threads,
        )
        chunks = [65, 1, 1, 64, 66, 1, 1, 1]
        sequence = Sequence(token_ids=token_ids, pages=list(range(13)), chunks=chunks)
        run_together(executor, [sequence])
        assert np.array_equal(sequence.logits(), expected)
        assert np.array_equal(alone_and_whole(executor, token_ids), expected)


@pytest.mark.parametrize("kv_dtype", PAGE_FORMATS, ids=str)
def test_a_copied_page_holds_the_same_keys_and_values(kv_dtype: KVDTypes) -> None:
    executor = random_executor(TINY, WEIGHT_SPECS["fp32"], num_pages=8, kv_dtype=kv_dtype)
    token_ids = random_tokens(np.random.default_rng(6), 40)
    expected = alone_and_whole(executor, token_ids)
    first = Sequence(token_ids=token_ids[:25], pages=[4, 6], chunks=[25])
    run_together(executor, [first])
    # A chain of copies is made in order; then the source is written by somebody else.
    executor.copy_pages([(6, 2), (2, 5)])
    run_together(executor, [Sequence(token_ids=token_ids[:16], pages=[6], chunks=[16])])
    rest = Sequence(token_ids=token_ids, pages=[4, 5, 7], chunks=[15], num_done=25)
    run_together(executor, [rest])
    assert np.array_equal(rest.logits(), expected[25:])


@pytest.mark.parametrize("pair", [(0, 8), (-1, 0), (8, 0)])
def test_copying_a_page_that_is_not_there_is_refused(pair: tuple[int, int]) -> None:
    executor = random_executor(TINY, WEIGHT_SPECS["bf16"], num_pages=8)
    before = alone_and_whole(executor, [1] * 16)
    with pytest.raises(ValueError, match="is unknown"):
        executor.copy_pages([(7, 0), pair])
    follow = SequenceSlice(token_ids=[1], start=15, pages=[0], num_logits=1)
    assert np.array_equal(executor.step([follow]), before[-1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": [97]}, "outside the vocabulary"),
        ({"token_ids": [-1]}, "outside the vocabulary"),
        ({"pages": [64]}, "is unknown"),
        ({"pages": [-1]}, "is unknown"),
        ({"pages": []}, "too few pages"),
        ({"start": -1}, "leaves the context"),
        ({"start": 256, "pages": list(range(17))}, "leaves the context"),
        ({"num_logits": 2}, "num_logits out of range"),
        ({"num_logits": -1}, "num_logits out of range"),
        ({"token_ids": [], "num_logits": 0}, "leaves the context"),
    ],
)
def test_a_slice_out_of_range_is_refused_and_the_executor_lives(
    change: dict[str, object], message: str
) -> None:
    executor = random_executor(TINY, WEIGHT_SPECS["bf16"], num_pages=64)
    good = SequenceSlice(token_ids=[1], start=0, pages=[0], num_logits=1)
    before = executor.step([good])
    with pytest.raises(ValueError, match=message):
        executor.step([good, replace(good, **change)])
    assert np.array_equal(executor.step([good]), before)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_static_pages_need_scales_above_0(bad: float) -> None:
    kv, threads = KVSpec(num_pages=2, dtype="fp8-static"), ThreadPlan(prefill=1, decode=1)
    with pytest.raises(ValueError, match="layer 0 has no scales of keys and values"):
        NativeModel(Context(spec=TINY), kv, threads).check_weights()
    good = KVScales(keys=(1.0, 1.0), values=(1.0, 1.0))
    for scales in (replace(good, values=(1.0, bad)), replace(good, keys=(1.0,))):
        with pytest.raises(ValueError, match="finite numbers above 0, one for each kv head"):
            NativeModel(Context(spec=TINY), kv, threads, {1: scales})


def test_the_same_slices_again_are_those_of_the_next_tokens() -> None:
    executor = random_executor(TINY, WEIGHT_SPECS["int4-g32"], num_pages=8, num_threads=2)
    rng = np.random.default_rng(0)
    prompts = [random_tokens(rng, length) for length in (3, 15, 17)]
    following = [random_tokens(rng, 3) for _ in range(4)]
    expected = [
        alone_and_whole(executor, [*prompt, *(tokens[i] for tokens in following)])[-4:]
        for i, prompt in enumerate(prompts)
    ]
    pages = [[3], [5], [0, 1]]
    chunks = zip(prompts, pages, strict=True)
    executor.step([SequenceSlice(ids, 0, kept, 0) for ids, kept in chunks])
    slices = [
        SequenceSlice([token_id], len(prompt), kept, 1)
        for token_id, prompt, kept in zip(following[0], prompts, pages, strict=True)
    ]
    rows = [executor.step(slices)]
    pages[1].append(7)  # its third token there begins a page
    rows += [executor.step_again(token_ids) for token_ids in following[1:]]
    assert np.array_equal(np.stack(rows, axis=1), np.stack(expected))


def test_a_token_out_of_range_is_refused_again() -> None:
    executor = random_executor(TINY, WEIGHT_SPECS["bf16"], num_pages=8)
    part = SequenceSlice(token_ids=[1], start=0, pages=[0], num_logits=1)
    executor.step([part])
    for token_ids, message in (([97], "outside the vocabulary"), ([1, 1], "do not add up")):
        with pytest.raises(ValueError, match=message):
            executor.step_again(token_ids)
