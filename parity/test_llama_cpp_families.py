"""Every family that is written, run by llama.cpp itself: its logits are those of the folder."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.peers.llama_logits import LlamaLogits
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.convert.write_gguf import write_gguf
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.families.table import FAMILIES

NUM_TOKENS = 60
UNTIED: dict[str, object] = {"tie_word_embeddings": False}
SHARE: dict[str, object] = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}
}
# Texts are shorter than the original context: llama.cpp chooses the long factors by the context
# that it was asked to make room for, and not by the text.
LONGROPE: dict[str, object] = {
    "max_position_embeddings": 2048,
    "original_max_position_embeddings": 512,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0, 1.0, 1.5, 2.0, 2.0, 3.0, 3.0, 4.0],
        "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0],
    },
}
OLMO3: dict[str, object] = {
    "sliding_window": 16,
    "rope_parameters": {
        "full_attention": {
            "rope_type": "yarn",
            "rope_theta": 5e5,
            "factor": 8.0,
            "original_max_position_embeddings": 16,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
    },
}
# Family, what its config changes, and the largest difference as a share of the largest logit: GELU
# is read from a table of fp16 there.
MODELS: dict[str, tuple[str, dict[str, object], float]] = {
    "llama": ("llama", {}, 1e-3),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}, 1e-3),
    "mistral": ("mistral", {"sliding_window": None}, 1e-3),
    "qwen2": ("qwen2", {}, 1e-3),
    "qwen3": ("qwen3", {}, 1e-3),
    "gemma": ("gemma", {}, 1e-2),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 32}, 1e-2),
    "gemma3": (
        "gemma3_text",
        {"query_pre_attn_scalar": 32, "num_hidden_layers": 6, "layer_types": None},
        1e-2,
    ),
    "mixtral": ("mixtral", {}, 1e-3),
    "qwen2_moe": ("qwen2_moe", {}, 1e-3),
    "qwen3_moe": ("qwen3_moe", {"norm_topk_prob": True}, 1e-3),
    "granite": ("granite", {}, 1e-3),
    "smollm3": ("smollm3", {"num_hidden_layers": 8}, 1e-3),
    "phi3": ("phi3", {}, 1e-3),
    "phi3, a part of each head": ("phi3", SHARE, 1e-3),
    "phi3, longrope": ("phi3", LONGROPE, 1e-3),
    "phi": ("phi", {}, 1e-2),
    "olmo2": ("olmo2", UNTIED, 1e-3),
    "olmo3": ("olmo3", UNTIED | OLMO3, 1e-3),
    "gpt_neox": ("gpt_neox", {}, 1e-2),
    "gpt_neox, one after the other": ("gpt_neox", {"use_parallel_residual": False}, 1e-2),
}


def test_every_family_that_is_written_is_here() -> None:
    written = {name for name, family in FAMILIES.items() if family.gguf is not None}
    # Ministral is Mistral under another name.
    assert {family for family, *_ in MODELS.values()} == written - {"ministral"}


@pytest.mark.parametrize("name", list(MODELS))
def test_the_logits_are_those_of_the_folder(name: str, tmp_path: Path) -> None:
    family, changes, tolerance = MODELS[name]
    make_model(family, torch.float32, 0, **changes).save_pretrained(tmp_path / "model")
    write_byte_tokenizer(tmp_path / "model")
    source = Checkpoint.open(tmp_path / "model")
    write_gguf(source, tmp_path / "model.gguf")
    ids = np.random.default_rng(0).integers(1, VOCAB_SIZE, NUM_TOKENS)
    with torch.no_grad():
        expected = Decoder.from_checkpoint(source)(torch.from_numpy(ids)[None])[0, -1].numpy()
    theirs = LlamaLogits(tmp_path / "model.gguf")
    found = theirs.logits(ids.tolist())
    theirs.close()
    assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()
