"""A model whose layers all differ: a wide one, a narrow one and ones with experts alternate. Rows
of all widths meet in every buffer, and each layer has forms that the others lack."""

from paredown.spec.attention import Attention, QueryTemperature
from paredown.spec.experts import Experts
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms
from paredown.spec.rotary import Rotary

RMS = Norm(kind="rms", eps=1e-5)
SHIFTED = Norm(kind="rms", eps=1e-6, offset=1.0)
CENTRED = Norm(kind="layer", eps=1e-5)
ROTARY = Rotary(theta=1e4)

WIDE = LayerSpec(
    attention=Attention(
        num_heads=6, num_kv_heads=6, head_dim=32, rotary=ROTARY, window=33, qkv_bias=True
    ),
    mlp=Mlp(size=176, is_gated=True, activation="gelu_tanh"),
    norms=Norms(attention=RMS, mlp=CENTRED),
    residual="parallel",
)
NARROW = LayerSpec(
    attention=Attention(
        num_heads=3,
        num_kv_heads=1,
        head_dim=16,
        rotary=Rotary(theta=500.0, share=0.4),
        window=7,
        scale=0.17,
        out_bias=True,
    ),
    mlp=Mlp(size=16, is_gated=False, activation="gelu", bias=True),
    norms=Norms(
        attention=RMS, mlp=RMS, q=SHIFTED, k=RMS, attention_output=SHIFTED, mlp_output=CENTRED
    ),
)
MIXED = LayerSpec(
    attention=Attention(num_heads=4, num_kv_heads=2, head_dim=16, rotary=ROTARY),
    mlp=Experts(
        num=5,
        num_per_token=2,
        size=32,
        is_normalized=True,
        is_gated=True,
        activation="silu",
        shared_size=112,
    ),
    norms=Norms(attention=RMS, mlp=RMS),
    residual_multiplier=0.4,
)
# OLMo 2 norms only the outputs of attention and MLP.
UNTURNED = LayerSpec(
    attention=Attention(num_heads=4, num_kv_heads=4, head_dim=16, rotary=None),
    mlp=Experts(
        num=2, num_per_token=1, size=48, is_normalized=False, is_gated=False, activation="relu"
    ),
    norms=Norms(attention_output=RMS, mlp_output=RMS),
)
# Phi-2 has one norm for attention and MLP, OLMo 2 norms all heads at once, Ministral 3 scales
# queries by position, and YaRN stretches the rotation.
GROWN = LayerSpec(
    attention=Attention(
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rotary=Rotary(
            theta=1e4,
            share=0.75,
            scaling="yarn",
            factor=4.0,
            original_max_positions=32,
            attention_factor=1.2,
        ),
        temperature=QueryTemperature(beta=0.4, num_positions=10),
        norms_span_heads=True,
    ),
    mlp=Mlp(size=48, is_gated=False, activation="gelu_tanh"),
    norms=Norms(attention=CENTRED, q=RMS, k=SHIFTED),
    residual="parallel_one_norm",
)


def unequal_spec(*, vocab_size: int) -> ModelSpec:
    return ModelSpec(
        family="llama",
        vocab_size=vocab_size,
        hidden_size=48,
        max_positions=256,
        embedding=Embedding(multiplier=3.0),
        layers=(WIDE, NARROW, MIXED, UNTURNED, GROWN, NARROW),
        final_norm=RMS,
        output=Output(multiplier=0.5, soft_cap=1.5, has_bias=True),
    )
