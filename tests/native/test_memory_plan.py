"""Peak memory is added up before anything is loaded, and a model that does not fit is refused."""

import json
import os
import struct
from pathlib import Path

import pytest
import torch

from paredown.engine.memory_plan import MemoryPlan, default_num_pages, plan_memory
from paredown.engine.native_executor import load_executor
from paredown.errors import CapacityError, ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv import KV_DTYPES, PAGE_SIZE, KVSpec
from random_executor import TINY
from tiny_models import VARIANTS

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
        load_executor(Checkpoint.open(tmp_path), num_pages=10**10)


def test_the_plan_counts_what_the_core_packs(tmp_path: Path) -> None:
    VARIANTS["llama-wide"](tmp_path, torch.bfloat16, 0)
    checkpoint = Checkpoint.open(tmp_path)
    plan = plan_memory(checkpoint, KVSpec(num_pages=8))
    packed = load_executor(checkpoint, num_pages=8).weight_bytes
    # The output layer's rows are padded to whole panels of 16, buffers to whole cache lines.
    assert plan.weight_bytes <= packed <= 1.05 * plan.weight_bytes
    spec = checkpoint.spec
    kv_bytes = 8 * PAGE_SIZE * 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * 2
    assert plan.kv_bytes == kv_bytes


def test_integer_pages_hold_a_scale_per_token_and_head() -> None:
    sizes = {
        dtype: KVSpec(num_pages=1, dtype=dtype).page_bytes(1, 1, 64) // (2 * PAGE_SIZE)
        for dtype in KV_DTYPES
    }
    assert sizes == {"bf16": 128, "fp32": 256, "int8": 66, "int4": 34}
    with pytest.raises(ConfigError, match="int2"):
        KVSpec(num_pages=1, dtype="int2")  # type: ignore[arg-type]


def test_smaller_pages_give_more_of_them() -> None:
    per_context = -(-TINY.max_positions // PAGE_SIZE)
    page_bytes = KVSpec(num_pages=1).page_bytes(TINY.num_layers, TINY.num_kv_heads, TINY.head_dim)
    available = 4 * 3 * per_context * page_bytes
    assert default_num_pages(TINY, available, "int4") > default_num_pages(TINY, available)


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
    page_bytes = KVSpec(num_pages=1).page_bytes(TINY.num_layers, TINY.num_kv_heads, TINY.head_dim)
    assert default_num_pages(TINY, 0) == per_context
    assert default_num_pages(TINY, 10**12) == 16 * per_context
    middle = 4 * 3 * per_context * page_bytes
    assert default_num_pages(TINY, middle) == 3 * per_context
