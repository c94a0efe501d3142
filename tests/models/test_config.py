"""Specs from configs: what each family means, and what is refused."""

import pytest
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from fakes.specs import flat_fields
from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.config import spec_from_config
from paredown.models.families.table import FAMILIES
from paredown.spec.context import Context
from paredown.spec.model import LearnedPositions
from paredown.spec.rotary import Rotary

SIZES = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
ROTARY = {**SIZES, "max_position_embeddings": 128}
ENCODER = {name: size for name, size in SIZES.items() if name != "num_key_value_heads"}
EXPERTS = {**ROTARY, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
CONFIGS: dict[str, dict[str, object]] = {
    "llama": ROTARY,
    "mistral": ROTARY,
    "qwen2": ROTARY,
    "qwen3": ROTARY,
    "mixtral": {**ROTARY, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 64},
    "qwen3_moe": {**EXPERTS, "num_experts": 4},
    "gpt_neox": {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    },
    "gemma": ROTARY,
    "gemma2": SIZES,
    "phi3": ROTARY,
    "phi": {**SIZES, "num_key_value_heads": 2},
    "granite": ROTARY,
    "granitemoehybrid": {
        **{name: size for name, size in ROTARY.items() if name != "intermediate_size"},
        "shared_intermediate_size": 96,
        "num_local_experts": 0,
        "layer_types": ["attention", "attention"],
    },
    "smollm3": ROTARY,
    "ministral": ROTARY,
    "ministral3": ROTARY,
    "starcoder2": SIZES,
    "olmo2": ROTARY,
    "olmo3": ROTARY,
    # Published configs leave the other sizes out.
    "gemma3_text": {"num_hidden_layers": 2},
    "gpt_oss": {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
    **dict.fromkeys(
        ("bert", "roberta", "xlm-roberta", "camembert", "mpnet", "nomic_bert", "modernbert"),
        ENCODER,
    ),
    "distilbert": {"vocab_size": 300, "dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4},
    "gpt2": {"vocab_size": 300, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "opt": {
        "vocab_size": 300,
        "hidden_size": 64,
        "ffn_dim": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    },
    "t5": {
        "vocab_size": 300,
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 96,
        "num_layers": 2,
        "num_heads": 4,
    },
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def config(family: str, **changes: object) -> dict[str, object]:
    return {"model_type": family, **CONFIGS[family], **changes}


@pytest.mark.parametrize("family", FAMILIES)
def test_fields_left_out_take_the_defaults_of_transformers(family: str) -> None:
    theirs = AutoConfig.for_model(**config(family))
    assert spec_from_config(config(family)) == spec_from_config(theirs.to_dict())


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_key_value_heads_left_out_take_the_defaults_of_transformers(family: str) -> None:
    left_out = config(family, hidden_size=128, num_attention_heads=32)
    del left_out["num_key_value_heads"]
    theirs = AutoConfig.for_model(**left_out)
    assert spec_from_config(left_out) == spec_from_config(theirs.to_dict())


@pytest.mark.parametrize(
    ("family", "changes", "expected"),
    [
        ("llama", {}, {"qkv_bias": False, "gated": True, "norm": "rms", "tied_embeddings": False}),
        ("llama", {"num_key_value_heads": None}, {"num_kv_heads": 4}),
        ("llama", {"head_dim": 32}, {"head_dim": 32}),
        ("llama", {"head_dim": None}, {"head_dim": 16}),
        ("llama", {"attention_bias": True}, {"qkv_bias": True, "attention_out_bias": True}),
        ("llama", {"mlp_bias": True}, {"mlp_bias": True, "qkv_bias": False}),
        ("mistral", {}, {"sliding_window": 4096}),
        ("mistral", {"sliding_window": None}, {"sliding_window": None}),
        ("qwen2", {}, {"qkv_bias": True, "attention_out_bias": False, "sliding_window": None}),
        ("qwen2", {"sliding_window": 8}, {"sliding_window": None}),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0},
            {"sliding_window": 8},
        ),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
            {"sliding_window": None, "full_layers": (), "kept_window": None},
        ),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
            {"sliding_window": 8, "full_layers": (0,), "kept_window": None},
        ),
        (
            "qwen2",
            {
                "use_sliding_window": True,
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            {"sliding_window": 8, "full_layers": (1,), "kept_window": None},
        ),
        (
            "qwen3",
            {
                "use_sliding_window": True,
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "sliding_attention"],
            },
            {"sliding_window": 8, "full_layers": (), "kept_window": 8},
        ),
        ("qwen3", {}, {"qk_norm": True, "head_dim": 128}),
        ("qwen3", {"attention_bias": True}, {"qkv_bias": True, "attention_out_bias": True}),
        ("gpt2", {}, {"intermediate_size": 256, "activation": "gelu_tanh", "norm": "layer"}),
        ("gpt2", {"n_inner": 96}, {"intermediate_size": 96}),
        ("gpt2", {}, {"positions": LearnedPositions(offset=0), "tied_embeddings": True}),
        ("opt", {}, {"positions": LearnedPositions(offset=2), "norm_eps": 1e-5}),
        ("opt", {"enable_bias": False}, {"qkv_bias": False, "mlp_bias": False, "gated": False}),
    ],
)
def test_fields_have_their_meaning(
    family: str, changes: dict[str, object], expected: dict[str, object]
) -> None:
    spec = spec_from_config(config(family, **changes))
    flat = flat_fields(spec) | {"kept_window": Context(spec=spec).kept_window}
    assert {name: flat[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Rotary(theta=10_000.0)),
        ({"rope_theta": 5e5}, Rotary(theta=5e5)),
        ({"rope_theta": 5e5, "rope_scaling": None}, Rotary(theta=5e5)),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, Rotary(theta=5e5)),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}},
            Rotary(theta=5e5, scaling="linear", factor=2.0),
        ),
        (
            {"rope_theta": 5e5, "rope_scaling": LLAMA3},
            Rotary(theta=5e5, scaling="llama3", factor=8.0, original_max_positions=64),
        ),
        (
            {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}},
            Rotary(theta=5e5, scaling="llama3", factor=8.0, original_max_positions=64),
        ),
    ],
)
def test_rotary_positions_old_and_new_names(changes: dict[str, object], expected: Rotary) -> None:
    assert spec_from_config(config("llama", **changes)).layers[0].attention.rotary == expected


@pytest.mark.parametrize("kind", ["linear", "llama3"])
def test_scaled_frequencies_equal_transformers(kind: str) -> None:
    scaling = LLAMA3 | {"rope_type": kind}
    if kind == "linear":
        scaling = {"rope_type": "linear", "factor": 4.0}
    changed = config("llama", rope_parameters={**scaling, "rope_theta": 10_000.0}, head_dim=64)
    theirs, _ = ROPE_INIT_FUNCTIONS[kind](AutoConfig.for_model(**changed))
    rotary = spec_from_config(changed).layers[0].attention.rotary
    assert isinstance(rotary, Rotary)
    assert rotary.inverse_frequencies(64) == pytest.approx(theirs.tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("llama", {"model_type": "mamba"}, ["mamba", *FAMILIES]),
        ("llama", {"hidden_act": "quick_gelu"}, ["hidden_act", "quick_gelu", "gelu_new"]),
        ("llama", {"rope_scaling": {"rope_type": "proportional"}}, ["proportional", "llama3"]),
        ("llama", {"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
        (
            "qwen3",
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            ["rope_parameters", "full_attention"],
        ),
        (
            "qwen2",
            {"use_sliding_window": True, "layer_types": ["sliding_attention", "linear_attention"]},
            ["linear_attention", "full_attention"],
        ),
        ("granitemoehybrid", {"num_local_experts": 8}, ["mixtures", "num_local_experts", "8"]),
        (
            "granitemoehybrid",
            {"layer_types": ["mamba", "attention"]},
            ["state-space", "layer_types", "mamba"],
        ),
        ("granitemoehybrid", {"position_embedding_type": "alibi"}, ["position_embedding_type"]),
        ("gpt2", {"scale_attn_weights": False}, ["scale_attn_weights"]),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx"]),
        ("gpt2", {"add_cross_attention": True}, ["add_cross_attention"]),
        ("opt", {"do_layer_norm_before": False}, ["do_layer_norm_before", "False"]),
        ("opt", {"word_embed_proj_dim": 32}, ["word_embed_proj_dim", "32", "64"]),
        ("opt", {"_remove_final_layer_norm": True}, ["_remove_final_layer_norm"]),
        ("opt", {"layer_norm_elementwise_affine": False}, ["layer_norm_elementwise_affine"]),
    ],
)
def test_what_cannot_be_expressed_is_refused(
    family: str, changes: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        spec_from_config(config(family, **changes))
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("family", "field"),
    [
        (family, field)
        for family, fields in CONFIGS.items()
        for field in ["model_type", *fields]
        if field != "num_key_value_heads"
    ],
)
def test_a_missing_field_is_named(family: str, field: str) -> None:
    broken = config(family)
    del broken[field]
    with pytest.raises(CheckpointError, match=f"'{field}'"):
        spec_from_config(broken)


@pytest.mark.parametrize("value", [None, 0, -1, True, "64", 64.0, [64], {}, 2**31])
@pytest.mark.parametrize("family", ["llama", "opt"])
def test_a_bad_size_is_named(family: str, value: object) -> None:
    with pytest.raises(CheckpointError, match="'hidden_size'"):
        spec_from_config(config(family, hidden_size=value))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"num_key_value_heads": 3}, "3 key-value heads"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "5 heads"),
        ({"head_dim": 15}, "head_dim 15"),
        ({"rms_norm_eps": "tiny"}, "'rms_norm_eps'"),
        ({"rms_norm_eps": float("nan")}, "'rms_norm_eps'"),
        ({"tie_word_embeddings": "yes"}, "'tie_word_embeddings'"),
        ({"model_type": 3}, "'model_type'"),
        ({"rope_scaling": "linear"}, "'rope_scaling'"),
        ({"rope_scaling": {"type": "linear"}}, "'factor'"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "high_freq_factor"),
    ],
)
def test_contradictions_are_named(changes: dict[str, object], word: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        spec_from_config(config("llama", **changes))
    assert word in str(caught.value)
