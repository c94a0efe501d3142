"""Metadata of any type and size: a file opens, or its fault is told as an error of ours."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paredown.errors import ParedownError
from paredown.models.gguf.config import config_from_metadata
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.header import Value
from paredown.models.gguf.tokenizer_notes import tokenizer_notes
from paredown.models.text.tokenizer import Tokenizer

PIECES = ["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁a", "Ġ", "<0x41>", "<|im_end|>", "##b", ""]
KEYS = (
    "model", "pre", "tokens", "scores", "token_type", "merges", "bos_token_id", "eos_token_id",
    "eot_token_id", "eom_token_id", "fim_pre_token_id", "unknown_token_id", "padding_token_id",
    "add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces",
    "precompiled_charsmap", "normalizer.lowercase",
)  # fmt: skip
MODELS = ("gpt2", "llama", "bert", "t5")
SIZES = ("block_count", "embedding_length", "attention.head_count", "attention.key_length",
         "context_length", "rope.scaling.type", "rope.scaling.factor", "rope.freq_base",
         "attention.sliding_window", "attention.scale", "expert_count", "logit_scale",
         "rope.scaling.attn_factor", "vocab_size")  # fmt: skip

numbers = st.one_of(
    st.integers(0, 2**32 - 1).map(np.uint32),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.integers(0, 12).map(np.uint32),
    st.floats(width=32).map(np.float32),
)
values: st.SearchStrategy[Value] = st.one_of(
    numbers,
    st.booleans(),
    st.sampled_from([*PIECES, *MODELS, "default", "llama-bpe", "yarn", "linear", "a b", "a"]),
    st.lists(st.sampled_from([*PIECES, "a b", "a b c", " ", "▁ a", "\x00"]), max_size=14),
    st.lists(st.floats(width=32), max_size=14).map(lambda some: np.array(some, np.float32)),
    st.lists(st.integers(-3, 9), max_size=14).map(lambda some: np.array(some, np.int32)),
    st.binary(max_size=64).map(lambda some: np.frombuffer(some, np.uint8)),
)


def tokenizer_metadata(model: str) -> dict[str, Value]:
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": PIECES[:-1],
        "tokenizer.ggml.scores": -np.arange(12, dtype=np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 3, 1], np.int32),
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.unknown_token_id": np.uint32(0),
        "tokenizer.ggml.bos_token_id": np.uint32(1),
        "tokenizer.ggml.eos_token_id": np.uint32(2),
    }


@pytest.mark.parametrize("model", MODELS)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.dictionaries(st.sampled_from(KEYS), values, max_size=3))
def test_a_tokenizer_of_any_metadata(
    model: str, changes: Mapping[str, Value], tmp_path: Path
) -> None:
    metadata = tokenizer_metadata(model)
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    write_gguf_file(tmp_path / "t.gguf", metadata, [], [])
    assert all(tokenizer_notes(metadata))
    try:
        tokenizer = Tokenizer.open(tmp_path / "t.gguf")
    except ParedownError:
        return
    ids = tokenizer.encode("ab <s> A\n  ß")
    assert all(0 <= one < tokenizer.vocab_size for one in ids)
    tokenizer.decode(ids)


@settings(max_examples=300, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(SIZES), values, max_size=3))
def test_sizes_of_any_metadata(changes: Mapping[str, Value]) -> None:
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "llama.embedding_length": np.uint32(64),
        "llama.attention.head_count": np.uint32(4),
        "llama.feed_forward_length": np.uint32(128),
        "llama.block_count": np.uint32(2),
        "llama.context_length": np.uint32(256),
    }
    metadata |= {f"llama.{key}": value for key, value in changes.items()}
    with contextlib.suppress(ParedownError):
        config_from_metadata(metadata, {"token_embd.weight": (258, 64)}, {}, "x.gguf")
