"""Fields of config.json that Transformers knows in any family: harmless ones, and for the others
the values that change nothing."""

from collections.abc import Mapping

# Fields that never change a result; `*` stands for anything.
HARMLESS = (
    # The config's origin, and how it is loaded.
    "_name_or_path", "_commit_hash", "_attn_implementation*", "_model_name_or_path",
    "architectures",
    "auto_map", "custom_pipelines", "model_type", "transformers_version", "transformers_weights",
    "name_or_path", "unsloth_*", "is_llama_config", "language", "license", "tokenizer_class",
    "quantization_config", "compression_config", "paredown", "peft_*",
    # Number formats, and other forms of the same arithmetic.
    "dtype", "torch_dtype", "attn_implementation", "flash_attn", "flash_rotary", "fused_dense",
    "fused_mlp", "chunk_size_feed_forward", "pretraining_tp", "reorder_and_upcast_attn",
    "scale_attention_softmax_in_fp32", "attention_softmax_in_fp32", "use_flash_attention*",
    "slow_but_exact", "onnx_safe", "torchscript", "use_bfloat16", "use_cache", "cache_*",
    "num_logits_to_keep", "ep_size", "return_dict*", "output_attentions", "output_hidden_states",
    "output_past", "tie_encoder_decoder", "residual_in_fp32",
    # Token ids, and text lengths that the model class ignores.
    "*_token_id", "*_token_index", "*_token_ids", "n_ctx", "prefix", "max_length", "min_length",
    "max_sequence_length", "seq_length", "model_max_length", "initial_context_length",
    # Read only where the scaling of rotary positions uses it.
    "original_max_position_embeddings",
    # Used only in training.
    "*dropout*", "*_pdrop", "*pdrop", "layerdrop", "initializer_*", "init_method", "*init_std*",
    "*aux_loss_coef", "*_loss_coef*", "output_router_logits", "router_jitter_noise",
    "input_jitter_noise",
    "gradient_checkpointing", "use_gradient_checkpointing", "mtp_loss*", "z_loss_*",
    # Layers that predict tokens after the next: their tensors would be found as extra.
    "num_nextn_predict_layers", "num_mtp_layers", "mtp_*",
    # The tensors show whether these exist.
    "attention_bias", "attention_out_bias", "mlp_bias", "qkv_bias", "use_qkv_bias", "use_bias",
    "lm_head_bias", "bias", "no_bias", "enable_bias", "add_bias_linear",
    # Sizes that the tensors have.
    "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "ffn_embed_dim", "d_ff",
    # Classification heads.
    "summary_*", "id2label", "label2id", "num_labels", "_num_labels", "problem_type",
    "finetuning_task", "classifier_*", "task_specific_params", "type_vocab_size", "is_decoder",
    "pooler_*", "directionality", "sbert_ce_default_activation_function", "sentence_transformers",
    "decoder_bias", "sparse_pred*", "deterministic_flash_attn", "reference_compile",
    "repad_logits_with_grad",
    # Sizes to which vectors may be cut; models/heads reads them.
    "is_matryoshka", "matryoshka_dimensions",
    # Generation settings.
    "temperature", "top_k", "top_p", "typical_p", "do_sample", "num_beams", "num_beam_groups",
    "num_return_sequences", "early_stopping", "length_penalty", "diversity_penalty",
    "repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "suppress_tokens", "begin_suppress_tokens", "exponential_decay_length_penalty",
    "remove_invalid_values", "output_scores", "generation_config",
)  # fmt: skip

_OFF: tuple[object, ...] = (0, "", [], {})
_ONE: tuple[object, ...] = (1,)
# Values that mean the same as an absent field; null does for every field.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    # Scores, queries, keys and values.
    **dict.fromkeys(
        (
            "clip_qkv", "attn_logit_softcapping", "attn_logit_softcap", "attn_temperature_tuning",
            "scale_attn_by_inverse_layer_idx", "use_logn_attn", "alibi", "use_alibi",
            "use_bidirectional_attention", "add_cross_attention", "is_encoder_decoder",
            "attention_chunk_size", "attention_k_eq_v", "attention_sink", "attention_sinks",
            "add_full_attention_sink_bias", "add_swa_attention_sink_bias", "softmax_scale",
            "use_attention_gate", "attn_output_gate", "prefix_lm", "pruned_heads", "rel_extent",
            "rope_interleaved", "rope_interleave", "nope_layer_interval", "rotary_value",
            "rope_local_base_freq", "local_rope_theta", "global_rope_theta", "layer_rope_theta",
            "swa_rope_theta", "swa_head_dim", "swa_num_attention_heads",
            "swa_num_key_value_heads", "use_dynamic_ntk", "attention_types", "attention_layers",
            "num_attention_heads_per_layer", "local_attention", "local_layer_ids", "multi_query",
            "rope_scaling", "rope_parameters", "attn_scale", "log_scaling_alpha",
            "lambda_std_dev", "qk_l2_clip_threshold",
        ),
        _OFF,
    ),
    "scale_attn_weights": (True,),
    "is_causal": (True,),
    "attention_value_scale": _ONE,
    "attention_in_multiplier": _ONE,
    "attention_out_multiplier": _ONE,
    "key_multiplier": _ONE,
    "rope_ratio": _ONE,
    "full_attn_mod": _ONE,
    "interpolate_factor": _ONE,
    "llama_4_scaling_beta": _OFF,
    "position_embedding_type": ("absolute", "rope", "rotary", "learned"),
    # Kinds of layers.
    **dict.fromkeys(
        (
            "layers_block_type", "block_types", "attn_layer_indices", "attn_layer_period",
            "full_attn_idxs", "hybrid_layer_ids", "full_attention_interval", "layer_group_size",
            "kv_lora_rank", "q_lora_rank", "o_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim",
            "index_topk", "index_topk_blocks", "indexer_types", "compress_rates",
            "num_kv_shared_layers", "hidden_size_per_layer_input", "altup_num_inputs",
            "laurel_rank", "activation_sparsity_pattern", "use_double_wide_mlp",
            "per_layer_config", "ngram_size", "hc_mult", "hc_count",
        ),
        _OFF,
    ),
    # What is added to the residual, and what goes in and out of it.
    **dict.fromkeys(
        (
            "residual_multiplier", "embedding_multiplier", "logits_scaling", "logit_scale",
            "lm_head_multiplier", "scale_emb", "embedding_scale", "mup_width_scale",
            "mup_width_multiplier", "mup_embeddings_multiplier", "mup_attn_multiplier",
            "embedding_fraction", "logits_mup_width_multiplier", "mlp_alpha_factor",
            "mlp_beta_factor", "full_attn_alpha_factor", "full_attn_beta_factor",
        ),
        _ONE,
    ),
    "scale_depth": (),
    "mlp_type": ("default",),
    **dict.fromkeys(
        (
            "final_logit_softcapping", "final_logit_softcap", "output_logit_soft_cap",
            "logits_soft_cap", "gate_soft_cap", "mlp_gate_softcap", "mlp_up_softcap", "gating",
            "new_decoder_architecture", "scale_embedding", "rescale_embeddings", "parallel_attn",
            "mup_enabled",
            "mup_use_scaling", "use_mup", "apply_residual_connection_post_layernorm",
            "use_post_norm", "use_sandwich_norm", "_remove_final_layer_norm",
        ),
        _OFF,
    ),
    "mlp_multipliers": ([1, 1],),
    "do_layer_norm_before": (True,),
    "layer_norm_elementwise_affine": (True,),
    # Experts.
    **dict.fromkeys(
        (
            "n_shared_experts", "num_shared_experts", "moe_num_shared_experts",
            "first_k_dense_replace", "num_dense_layers", "router_logit_softcapping",
            "moe_router_logit_softcapping", "use_expert_bias", "moe_router_enable_expert_bias",
            "shared_expert_intermediate_size", "shared_intermediate_size", "enable_moe_block",
            "swiglu_limit", "swiglu_alpha", "is_moe", "zero_expert_num",
        ),
        _OFF,
    ),
    **dict.fromkeys(
        (
            "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts",
            "expert_num",
        ),
        (0, 1),
    ),
    "n_group": (0, 1),
    "num_expert_group": (0, 1),
    "topk_group": (0, 1),
    "routed_scaling_factor": _ONE,
    "route_scale": _ONE,
    "router_scaling_factor": _ONE,
    "moe_routed_scaling_factor": _ONE,
    "scoring_func": ("softmax",),
    "expert_selection_fn": ("softmax",),
    "topk_method": ("greedy",),
    "moe_layer_freq": _ONE,
    "decoder_sparse_step": _ONE,
    "mlp_only_layers": ([],),
}  # fmt: skip
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
# A field -> the fields without which, or while they are off, it has no effect.
SWITCHES: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    (
        "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk",
        "norm_topk_prob", "moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers",
        "moe_layer_freq", "moe_renormalize", "scoring_func", "topk_method",
        "expert_selection_fn", "interleave_moe_layer_step", "moe_layer_interval", "moe_layers",
        "routed_scaling_factor", "n_group", "topk_group",
    ),
    _EXPERTS,
)  # fmt: skip
# Parameters of a rotary scaling that never matter here: those of some scalings only, which the
# others ignore here and in Transformers, and the part for pictures in a text model.
ROTARY_HARMLESS = ("mrope_section", "mrope_interleaved", "max_position_embeddings", "finetuned")
