"""Tiny random checkpoints written by Transformers itself, one for each feature of a spec.

`VARIANTS[name](folder, dtype, seed)` writes one. All dimensions of linear layers are multiples of
32. Weights are wide, and norms and biases random, so that every missing term shows."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    MinistralConfig,
    MinistralForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

VOCAB_SIZE = 300
MAX_POSITIONS = 128
INITIALIZER_RANGE = 0.2
# Large enough to show in the logits.
NORM_EPS = 1e-3
TOKENS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
MINISTRAL3_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.3,
}
ROTARY_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": INITIALIZER_RANGE,
    "rms_norm_eps": NORM_EPS,
    **TOKENS,
}
GPT2_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": MAX_POSITIONS,
    "initializer_range": INITIALIZER_RANGE,
    "layer_norm_epsilon": NORM_EPS,
    **TOKENS,
}
OPT_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "ffn_dim": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "init_std": INITIALIZER_RANGE,
    **TOKENS,
}
NEOX_SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": INITIALIZER_RANGE,
    "layer_norm_eps": NORM_EPS,
    **TOKENS,
}
# Soft caps and a scale that show in the logits.
GEMMA2_SIZES = ROTARY_SIZES | {
    "head_dim": 32,
    "sliding_window": 7,
    "query_pre_attn_scalar": 24,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 3.0,
}
# Its own scale, and layers of both kinds.
GEMMA3_SIZES = ROTARY_SIZES | {
    "head_dim": 32,
    "sliding_window": 7,
    "query_pre_attn_scalar": 24,
    "layer_types": ["sliding_attention", "full_attention"],
}
GRANITE_SCALARS = {
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.4,
    "embedding_multiplier": 3.0,
    "logits_scaling": 4.0,
}
# Granite 4 without routed experts and state-space layers.
GRANITE_DENSE = {
    "num_local_experts": 0,
    "shared_intermediate_size": 96,
    "layer_types": ["full_attention", "full_attention"],
    "position_embedding_type": "rope",
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM, ROTARY_SIZES),
    "mistral": (MistralConfig, MistralForCausalLM, ROTARY_SIZES),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, ROTARY_SIZES),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, ROTARY_SIZES | {"head_dim": 32}),
    "mixtral": (MixtralConfig, MixtralForCausalLM, ROTARY_SIZES | {"num_local_experts": 4}),
    "qwen2_moe": (
        Qwen2MoeConfig,
        Qwen2MoeForCausalLM,
        ROTARY_SIZES | EXPERTS | {"shared_expert_intermediate_size": 64},
    ),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM, ROTARY_SIZES | EXPERTS | {"head_dim": 32}),
    "gpt2": (GPT2Config, GPT2LMHeadModel, GPT2_SIZES),
    "opt": (OPTConfig, OPTForCausalLM, OPT_SIZES),
    "gpt_neox": (GPTNeoXConfig, GPTNeoXForCausalLM, NEOX_SIZES),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, GEMMA2_SIZES),
    "gemma": (GemmaConfig, GemmaForCausalLM, ROTARY_SIZES | {"head_dim": 32}),
    "phi3": (Phi3Config, Phi3ForCausalLM, ROTARY_SIZES | {"pad_token_id": 0}),
    "phi": (PhiConfig, PhiForCausalLM, NEOX_SIZES),
    "granite": (GraniteConfig, GraniteForCausalLM, ROTARY_SIZES | GRANITE_SCALARS),
    "granitemoehybrid": (
        GraniteMoeHybridConfig,
        GraniteMoeHybridForCausalLM,
        ROTARY_SIZES | GRANITE_SCALARS | GRANITE_DENSE,
    ),
    "smollm3": (SmolLM3Config, SmolLM3ForCausalLM, ROTARY_SIZES | {"pad_token_id": 0}),
    "starcoder2": (
        Starcoder2Config,
        Starcoder2ForCausalLM,
        {name: one for name, one in ROTARY_SIZES.items() if name != "rms_norm_eps"}
        | {"norm_epsilon": NORM_EPS},
    ),
    "ministral": (MinistralConfig, MinistralForCausalLM, ROTARY_SIZES | {"sliding_window": 7}),
    "ministral3": (
        Ministral3Config,
        Ministral3ForCausalLM,
        ROTARY_SIZES | {"head_dim": 16, "rope_parameters": MINISTRAL3_ROPE},
    ),
    "olmo2": (Olmo2Config, Olmo2ForCausalLM, ROTARY_SIZES | {"pad_token_id": 0}),
    "olmo3": (
        Olmo3Config,
        Olmo3ForCausalLM,
        ROTARY_SIZES | {"pad_token_id": 0, "sliding_window": 7, "num_hidden_layers": 4},
    ),
    "gemma3_text": (Gemma3TextConfig, Gemma3ForCausalLM, GEMMA3_SIZES),
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Small enough for kept, ramped and stretched wavelengths in a head of 16.
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}

Writer = Callable[[Path, torch.dtype, int], None]


def make_model(family: str, dtype: torch.dtype, seed: int, **changes: object) -> torch.nn.Module:
    """Returns a random model in eval mode; norms and biases are random too."""
    config_class, model_class, sizes = CLASSES[family]
    torch.manual_seed(seed)
    model = model_class(config_class(**{**sizes, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                centre = 1.0 if name.endswith("weight") else 0.0
                parameter.copy_(centre + INITIALIZER_RANGE * torch.randn_like(parameter))
    return model.to(dtype)


def write_model(
    family: str, changes: dict[str, object], folder: Path, dtype: torch.dtype, seed: int
) -> None:
    make_model(family, dtype, seed, **changes).save_pretrained(folder)


def variant(family: str, **changes: object) -> Writer:
    return partial(write_model, family, changes)


VARIANTS: dict[str, Writer] = {
    "llama-gqa": variant("llama"),
    "llama-mqa": variant("llama", num_key_value_heads=1),
    "llama-mha": variant("llama", num_key_value_heads=4),
    "llama-tied": variant("llama", tie_word_embeddings=True),
    "llama-biases": variant("llama", attention_bias=True, mlp_bias=True),
    "llama-head-dim": variant("llama", head_dim=32),
    "llama-gelu": variant("llama", hidden_act="gelu"),
    "llama-gelu-tanh": variant("llama", hidden_act="gelu_pytorch_tanh"),
    "llama-relu": variant("llama", hidden_act="relu"),
    "llama-wide": variant("llama", hidden_size=128, intermediate_size=256),
    "llama-rope-llama3": variant("llama", rope_parameters=LLAMA3_ROPE),
    "llama-rope-linear": variant("llama", rope_parameters=LINEAR_ROPE),
    "mistral-full": variant("mistral", sliding_window=None),
    "mistral-window": variant("mistral", sliding_window=7),
    "qwen2": variant("qwen2"),
    "qwen2-tied": variant("qwen2", tie_word_embeddings=True),
    "qwen2-window": variant(
        "qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=0
    ),
    "qwen2-mixed": variant("qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "qwen3": variant("qwen3"),
    "qwen3-mixed": variant(
        "qwen3",
        use_sliding_window=True,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "qwen3-tied-biases": variant("qwen3", tie_word_embeddings=True, attention_bias=True),
    "mixtral": variant("mixtral"),
    "mixtral-window": variant("mixtral", sliding_window=7),
    "qwen2-moe": variant("qwen2_moe"),
    "qwen2-moe-every-second": variant("qwen2_moe", decoder_sparse_step=2, norm_topk_prob=True),
    "qwen3-moe": variant("qwen3_moe", norm_topk_prob=True),
    "qwen3-moe-dense-first": variant("qwen3_moe", mlp_only_layers=[0], num_experts_per_tok=3),
    "gpt2": variant("gpt2"),
    "gpt2-untied": variant("gpt2", tie_word_embeddings=False, n_inner=96),
    "gpt2-relu": variant("gpt2", activation_function="relu"),
    "opt": variant("opt"),
    "opt-gelu": variant("opt", activation_function="gelu"),
    "opt-untied-no-biases": variant("opt", tie_word_embeddings=False, enable_bias=False),
    "gpt-neox": variant("gpt_neox"),
    "gpt-neox-sequential": variant(
        "gpt_neox", use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True
    ),
    "gpt-neox-whole-heads": variant("gpt_neox", rotary_pct=1.0),
    "gemma": variant("gemma"),
    "phi3": variant("phi3"),
    "phi3-partial-window": variant(
        "phi3",
        sliding_window=7,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    ),
    "granite": variant("granite"),
    "granite-hybrid-dense": variant("granitemoehybrid"),
    "granite-hybrid-no-positions": variant("granitemoehybrid", position_embedding_type="nope"),
    "granite-biases": variant("granite", attention_bias=True, mlp_bias=True),
    "smollm3": variant("smollm3", num_hidden_layers=8),
    "smollm3-listed": variant(
        "smollm3", num_hidden_layers=8, no_rope_layers=[0, 1, 1, 1, 1, 0, 1, 1]
    ),
    "smollm3-window": variant(
        "smollm3", num_hidden_layers=4, use_sliding_window=True, sliding_window=7
    ),
    "starcoder2": variant("starcoder2"),
    "starcoder2-window": variant(
        "starcoder2", sliding_window=7, use_bias=False, tie_word_embeddings=False
    ),
    "ministral": variant(
        "ministral", layer_types=["sliding_attention", "full_attention"], head_dim=32
    ),
    "gemma3": variant("gemma3_text"),
    "gemma3-scaled": variant(
        "gemma3_text",
        tie_word_embeddings=False,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    ),
    "gemma2": variant("gemma2"),
    "gemma2-untied": variant("gemma2", tie_word_embeddings=False, attention_bias=True),
    "gemma2-no-caps": variant(
        "gemma2",
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
        layer_types=["full_attention", "full_attention"],
    ),
    # As in llama.cpp: scaled by the head's size, with every sixth layer full.
    "gemma3-six-layers": variant(
        "gemma3_text", query_pre_attn_scalar=32, num_hidden_layers=6, layer_types=None
    ),
}
# Runs only on the PyTorch decoder.
DECODER_VARIANTS: dict[str, Writer] = {
    "phi": variant("phi"),
    "phi3-longrope": variant(
        "phi3",
        original_max_position_embeddings=16,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0] * 8,
            "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0],
        },
    ),
    "olmo2": variant("olmo2"),
    "olmo3": variant(
        "olmo3",
        rope_parameters={
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 5e5,
                "factor": 8.0,
                "original_max_position_embeddings": 16,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
        },
    ),
}
