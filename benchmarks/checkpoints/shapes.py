"""The models that are measured, as config.json: the true shapes of models people run.

SmolLM2-135M, Qwen2.5-0.5B and Llama-3.2-1B have the fields of their published config.json;
`llama-15m` is the shape of llama2.c's stories15M, `llama-3.2-draft-80m` nobody's; `tiny-*` are for
tests.
"""

from collections.abc import Mapping

Config = Mapping[str, object]

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
}
# One head of 64, in groups, so that rotary positions and grouped heads are seen.
TINY_SIZES = {
    "vocab_size": 384,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 256,
    "eos_token_id": 257,
}

CONFIGS: Mapping[str, Config] = {
    "llama-15m": {
        **LLAMA,
        "vocab_size": 32000,
        "hidden_size": 288,
        "intermediate_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "smollm2-135m": {
        **LLAMA,
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "rope_theta": 100000.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "qwen2.5-0.5b": {
        **QWEN2,
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "bos_token_id": 151643,
        "eos_token_id": 151643,
    },
    "llama-3.2-1b": {
        **LLAMA,
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": LLAMA3_ROPE,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    },
    # A draft model for it, of the same vocabulary.
    "llama-3.2-draft-80m": {
        **LLAMA,
        "vocab_size": 128256,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": LLAMA3_ROPE,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    },
    # The layers of Qwen3-30B-A3B, six of its 48, with a smaller vocabulary.
    "qwen3-30b-a3b-6l": {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "num_hidden_layers": 6,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "tiny-qwen3-moe": {
        **QWEN2,
        **TINY_SIZES,
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "head_dim": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    },
    "tiny-llama": {
        **LLAMA,
        **TINY_SIZES,
        "rope_theta": 10000.0,
        # Kept, ramped and stretched wavelengths all occur in a head of 32.
        "rope_scaling": {**LLAMA3_ROPE, "original_max_position_embeddings": 64},
    },
    "tiny-qwen2": {**QWEN2, **TINY_SIZES, "rope_theta": 10000.0},
}
