"""Peak memory is added up before anything is loaded, and a model that does not fit is refused."""

import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_executor import TINY, WEIGHT_SPECS, random_executor
from fakes.specs import changed, kv_layers, silu_experts
from fakes.tiny_models import VARIANTS
from paredown.errors import CapacityError, ConfigError
from paredown.executors.load import load_executor
from paredown.executors.memory_plan import MemoryPlan
from paredown.executors.native.memory_plan import plan_memory
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.page_memory import (
    PLANNED_STEP_TOKENS,
    default_num_pages,
    page_arithmetic,
    pages_in,
)
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.isa import ENVIRONMENT_VARIABLE
from paredown.kernels.native_model import planned_step_bytes
from paredown.kernels.packed_file import Blob
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context
from paredown.spec.kv import KV_DTYPES, PAGE_SIZE, STATIC_KV_DTYPES, KVSpec

LLAMA_405B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


def write_hollow_llama(folder: Path, config: dict[str, object]) -> int:
    """A checkpoint of true shapes whose bytes are a hole in the file; returns its length."""
    hidden, inner, vocab = (config[k] for k in ("hidden_size", "intermediate_size", "vocab_size"))
    head_dim = hidden // config["num_attention_heads"]
    kv_size = config["num_key_value_heads"] * head_dim
    shapes = {
        "model.embed_tokens.weight": [vocab, hidden],
        "lm_head.weight": [vocab, hidden],
        "model.norm.weight": [hidden],
    }
    layer_shapes = {
        "self_attn.q_proj": [hidden, hidden],
        "self_attn.k_proj": [kv_size, hidden],
        "self_attn.v_proj": [kv_size, hidden],
        "self_attn.o_proj": [hidden, hidden],
        "mlp.gate_proj": [inner, hidden],
        "mlp.up_proj": [inner, hidden],
        "mlp.down_proj": [hidden, inner],
        "input_layernorm": [hidden],
        "post_attention_layernorm": [hidden],
    }
    for layer in range(config["num_hidden_layers"]):
        for name, shape in layer_shapes.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    encoded = json.dumps(header).encode()
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded)
    os.truncate(path, 8 + len(encoded) + offset)
    return offset


def test_a_model_larger_than_memory_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    num_bytes = write_hollow_llama(tmp_path, LLAMA_405B)
    assert num_bytes > 800e9
    with pytest.raises(CapacityError, match="does not fit in memory") as caught:
        load_executor(Checkpoint.open(tmp_path))
    message = str(caught.value)
    for term in ("weights", "embedding", "KV pages", "= ", "available", "int4-g128"):
        assert term in message


def test_too_many_pages_are_refused(tmp_path: Path) -> None:
    VARIANTS["llama-gqa"](tmp_path, torch.bfloat16, 0)
    with pytest.raises(CapacityError, match="KV pages"):
        load_executor(Checkpoint.open(tmp_path), RunOptions(num_pages=10**10))


def test_the_plan_counts_what_the_core_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    VARIANTS["llama-wide"](tmp_path, torch.bfloat16, 0)
    checkpoint = Checkpoint.open(tmp_path)
    plan = plan_memory(checkpoint, KVSpec(num_pages=8), 1)
    assert (
        load_executor(checkpoint, RunOptions(num_pages=8)).weight_bytes <= 1.05 * plan.weight_bytes
    )
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "generic")  # which packs bf16 as it is
    packed = load_executor(checkpoint, RunOptions(num_pages=8)).weight_bytes
    # The output layer's rows are padded to whole panels of 16, buffers to whole cache lines.
    assert plan.weight_bytes <= packed <= 1.05 * plan.weight_bytes
    spec = checkpoint.spec
    kv_bytes = 8 * PAGE_SIZE * 2 * sum(layer.attention.kv_size for layer in spec.layers) * 2
    assert plan.kv_bytes == kv_bytes


def test_pages_of_codes_hold_a_scale_per_token_and_head_unless_it_is_static() -> None:
    sizes = {
        dtype: KVSpec(num_pages=1, dtype=dtype).page_bytes(kv_layers(1, 1, 64)) // (2 * PAGE_SIZE)
        for dtype in (*KV_DTYPES, *STATIC_KV_DTYPES)
    }
    floats, static = {"bf16": 128, "fp32": 256}, {"int8-static": 64, "fp8-static": 64}
    assert sizes == floats | {"int8": 66, "int4": 34, "fp8": 66} | static
    with pytest.raises(ConfigError, match="int2"):
        KVSpec(num_pages=1, dtype="int2")  # type: ignore[arg-type]


def test_smaller_pages_give_more_of_them() -> None:
    per_context = -(-TINY.max_positions // PAGE_SIZE)
    page_bytes = KVSpec(num_pages=1).page_bytes(TINY)
    available = 4 * 3 * per_context * page_bytes
    assert default_num_pages(Context(spec=TINY), available, "int4") > default_num_pages(
        Context(spec=TINY), available
    )


def test_the_total_is_the_sum_of_its_terms() -> None:
    plan = MemoryPlan(
        weight_bytes=1, embedding_bytes=20, kv_bytes=300, step_bytes=4000, load_bytes=50000
    )
    assert plan.total_bytes == 54321
    plan.check(54321)
    with pytest.raises(CapacityError):
        plan.check(54320)


def test_default_pages_hold_a_context_and_stay_within_a_quarter_of_memory() -> None:
    per_context = -(-TINY.max_positions // PAGE_SIZE)
    page_bytes = KVSpec(num_pages=1).page_bytes(TINY)
    assert default_num_pages(Context(spec=TINY), 0) == per_context
    assert default_num_pages(Context(spec=TINY), 10**12) == 16 * per_context
    middle = 4 * 3 * per_context * page_bytes
    assert default_num_pages(Context(spec=TINY), middle) == 3 * per_context


# Eight chunks of keys, which threads can share.
LONG = replace(TINY, max_positions=4096)
PAGES_EACH = LONG.max_positions // PAGE_SIZE
MAX_SLICES = 4


def long_slice(number: int, start: int, length: int) -> SequenceSlice:
    pages = list(range(number * PAGES_EACH, (number + 1) * PAGES_EACH))
    return SequenceSlice(token_ids=[1] * length, start=start, pages=pages, num_logits=1)


def long_executor(num_threads: int) -> NativeExecutor:
    return random_executor(
        LONG,
        WEIGHT_SPECS["int8"],
        num_pages=MAX_SLICES * PAGES_EACH,
        num_threads=num_threads,
    )


def planned(num_threads: int, num_tokens: int, num_pages: int = MAX_SLICES * PAGES_EACH) -> int:
    return planned_step_bytes(
        Context(spec=LONG), KVSpec(num_pages=num_pages), num_threads, num_tokens
    )


def test_one_thread_allocates_what_is_planned() -> None:
    executor = long_executor(1)
    most = 0
    for num_tokens in (1, 17, 100, 33):
        most = max(most, num_tokens)
        executor.step([long_slice(0, 2000, num_tokens)])
        assert executor.step_bytes == planned(1, most)


def test_experts_work_in_memory_that_is_planned() -> None:
    sizes = {"num": 5, "num_per_token": 2, "size": 48, "is_normalized": False}
    plans = {}
    for name, own in {
        "experts": silu_experts(**sizes),
        "shared": silu_experts(**sizes, shared_size=112),
        "in no layer": silu_experts(**sizes, dense_layers={0, 1}),
    }.items():
        context = Context(spec=changed(TINY, experts=own))
        executor = random_executor(context, WEIGHT_SPECS["int8"], num_pages=8)
        pages = list(range(8))
        executor.step([SequenceSlice(token_ids=[1] * 90, start=0, pages=pages, num_logits=1)])
        plans[name] = planned_step_bytes(context, KVSpec(num_pages=8), 1, 90)
        assert executor.step_bytes == plans[name]
    dense = planned_step_bytes(Context(spec=TINY), KVSpec(num_pages=8), 1, 90)
    assert plans["in no layer"] == dense < plans["experts"] < plans["shared"]


def test_a_step_reads_the_experts_of_a_token() -> None:
    """An expert is as large as a dense layer's MLP here."""
    experts = silu_experts(num=6, num_per_token=2, size=96, is_normalized=True)
    dense = random_executor(TINY, WEIGHT_SPECS["int8"], num_pages=8).weight_bytes
    moe = random_executor(changed(TINY, experts=experts), WEIGHT_SPECS["int8"], num_pages=8)
    one = silu_experts(num=6, num_per_token=1, size=96, is_normalized=True)
    lean = random_executor(changed(TINY, experts=one), WEIGHT_SPECS["int8"], num_pages=8)
    mlp_bytes = moe.weight_bytes - lean.weight_bytes
    # A router's rows are filled up to 16; each has a bias here.
    router_bytes = TINY.num_layers * 16 * (TINY.hidden_size + 1) * 4
    assert lean.weight_bytes == dense + router_bytes
    assert 0 < mlp_bytes < dense


def test_the_plan_counts_every_expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "generic")
    VARIANTS["qwen2-moe"](tmp_path, torch.bfloat16, 0)
    checkpoint = Checkpoint.open(tmp_path)
    plan = plan_memory(checkpoint, KVSpec(num_pages=8), 1)
    executor = load_executor(checkpoint, RunOptions(num_pages=8))
    packed = sum(blob.data.nbytes for blob in executor._model.packed() if is_linear(blob))
    assert executor.weight_bytes < 0.7 * packed
    # Routers and gates of few rows are filled up to whole panels of 16.
    assert plan.weight_bytes <= packed <= 1.25 * plan.weight_bytes


def is_linear(blob: Blob) -> bool:
    return blob.fields["part"] == "linear"


@settings(max_examples=40, deadline=None)
@given(
    num_threads=st.integers(2, 4),
    places=st.lists(
        st.tuples(st.integers(0, 4000), st.integers(1, 90)), min_size=1, max_size=MAX_SLICES
    ),
)
def test_threads_that_share_contexts_stay_within_the_plan(
    num_threads: int, places: list[tuple[int, int]]
) -> None:
    executor = long_executor(num_threads)
    executor.step([long_slice(i, start, length) for i, (start, length) in enumerate(places)])
    num_tokens = sum(length for _, length in places)
    # With one page there is no context to share.
    alone = planned(num_threads, num_tokens, num_pages=1)
    assert alone <= executor.step_bytes <= planned(num_threads, num_tokens)


def test_a_shared_context_takes_more() -> None:
    executor = long_executor(2)
    executor.step([long_slice(0, 4000, 1)])
    assert planned(2, 1, num_pages=1) < executor.step_bytes <= planned(2, 1)


def test_the_plan_counts_working_memory_and_logits(tmp_path: Path) -> None:
    VARIANTS["llama-wide"](tmp_path, torch.bfloat16, 0)
    checkpoint = Checkpoint.open(tmp_path)
    plan = plan_memory(checkpoint, KVSpec(num_pages=64), 1)
    executor = load_executor(checkpoint, RunOptions(num_pages=64, threads=ThreadPlan.resolve(1)))
    pages = list(range(64))
    num_slices = -(-PLANNED_STEP_TOKENS // checkpoint.spec.max_positions)
    length = PLANNED_STEP_TOKENS // num_slices
    each = 64 // num_slices
    logits = executor.step(
        [
            SequenceSlice(
                token_ids=[1] * length,
                start=0,
                pages=pages[i * each : (i + 1) * each],
                num_logits=length,
            )
            for i in range(num_slices)
        ]
    )
    assert plan.step_bytes == executor.step_bytes + logits.nbytes


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_pages_fit_the_memory_they_are_given(kv_dtype):
    for num_bytes in (100_000, 1_000_000, 1_234_567):
        num_pages = pages_in(num_bytes, TINY, kv_dtype)
        sizes = [
            KVSpec(num_pages=1, dtype=kv_dtype).page_bytes(kv_layers(2, 2, 16)) * count
            for count in (num_pages, num_pages + 1)
        ]
        assert sizes[0] <= num_bytes < sizes[1]
    with pytest.raises(CapacityError, match="holds no page"):
        pages_in(1000, TINY, kv_dtype)


def test_layers_may_differ():
    kv = KVSpec(num_pages=10, dtype=("bf16", "int4"))
    each = [KVSpec(num_pages=1, dtype=dtype).page_bytes(kv_layers(1, 2, 16)) for dtype in kv.dtype]
    assert kv.page_bytes(kv_layers(2, 2, 16)) == sum(each)
    assert page_arithmetic(Context(spec=TINY), kv) == (
        "KV pages: 10 of 16 tokens x 2 layers x 2 heads x (key + value) x 16 "
        "(1 bf16 + 1 int4 and scales) = 10 x 2.69 kB = 26.88 kB: 160 tokens, 0.6 contexts of 256"
    )
    with pytest.raises(ConfigError, match="2 formats, 3 layers"):
        kv.page_bytes(kv_layers(3, 2, 16))


def test_the_arithmetic_of_pages_is_shown():
    assert page_arithmetic(Context(spec=TINY), KVSpec(num_pages=100, dtype="int8")) == (
        "KV pages: 100 of 16 tokens x 2 layers x 2 heads x (key + value) x 16 int8 and scales = "
        "100 x 2.30 kB = 230.40 kB: 1,600 tokens, 6.2 contexts of 256"
    )


SINKING = Context(
    spec=replace(TINY, max_positions=4096),
    sinks=AttentionSinks(num_sink_tokens=4, window=1020),
)
SLIDING = changed(TINY, max_positions=4096, sliding_window=500)


def test_the_arithmetic_of_pages_tells_what_a_request_behind_its_window_holds():
    line = page_arithmetic(SINKING, KVSpec(num_pages=196))
    assert line.endswith(
        "3,136 tokens, 2.0 of the longest requests: 4 sinks + a window of 1,020 + a step of 512 "
        "tokens are 98 pages"
    )
    line = page_arithmetic(Context(spec=SLIDING), KVSpec(num_pages=130))
    assert line.endswith(
        "2.0 of the longest requests: a window of 500 + a step of 512 tokens are 65 pages"
    )
    short = replace(SLIDING, max_positions=600)
    assert page_arithmetic(Context(spec=short), KVSpec(num_pages=75)).endswith(
        "2.0 contexts of 600"
    )
    mixed = changed(SLIDING, full_layers=(0,))
    assert page_arithmetic(Context(spec=mixed), KVSpec(num_pages=256)).endswith(
        "1.0 contexts of 4,096"
    )


def test_default_pages_are_those_that_requests_hold():
    assert default_num_pages(Context(spec=SLIDING), 10**12) == 16 * 65
    assert default_num_pages(SINKING, 10**12) == 16 * 98
    assert default_num_pages(SINKING, 0) == 98
    assert default_num_pages(Context(spec=changed(SLIDING, full_layers=(0,))), 0) == 256


def test_working_memory_does_not_grow_with_texts_without_end():
    kv = KVSpec(num_pages=98)
    endless = planned_step_bytes(SINKING, kv, 2, 512)
    assert endless < 1.5 * planned_step_bytes(Context(spec=TINY), kv, 2, 512)
