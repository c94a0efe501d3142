"""Encoders of every form that the core runs, small enough for tests."""

from dataclasses import replace

from paredown.spec.attention import Attention
from paredown.spec.head import Head, HeadStep, PoolingKind
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, LearnedPositions, ModelSpec
from paredown.spec.norm import Norm, Norms
from paredown.spec.rotary import Rotary

VOCAB_SIZE = 83
MAX_POSITIONS = 300
LAYER_NORM = Norm(kind="layer", eps=1e-5)
RMS = Norm(kind="rms", eps=1e-6, offset=1.0)
POOLINGS: tuple[PoolingKind, ...] = (
    "cls", "last", "mean", "mean_sqrt_len", "weighted_mean", "max", "max_log_relu",
)  # fmt: skip

# BERT: norms on the sums.
POST_NORM = LayerSpec(
    attention=Attention(
        num_heads=3,
        num_kv_heads=3,
        head_dim=16,
        rotary=None,
        is_causal=False,
        qkv_bias=True,
        out_bias=True,
    ),
    mlp=Mlp(size=80, is_gated=False, activation="gelu", bias=True),
    norms=Norms(attention_sum=LAYER_NORM, mlp_sum=LAYER_NORM),
)
# ModernBERT: windows on both sides in some layers, and gates.
LOCAL = LayerSpec(
    attention=Attention(
        num_heads=2,
        num_kv_heads=2,
        head_dim=32,
        rotary=Rotary(theta=1e4),
        is_causal=False,
        window=9,
    ),
    mlp=Mlp(size=96, is_gated=True, activation="gelu"),
    norms=Norms(attention=LAYER_NORM, mlp=LAYER_NORM),
)
GLOBAL = replace(LOCAL, attention=replace(LOCAL.attention, window=None))
# EmbeddingGemma: norms on what is added, too.
GEMMA = LayerSpec(
    attention=Attention(
        num_heads=4,
        num_kv_heads=1,
        head_dim=16,
        rotary=Rotary(theta=1e4),
        is_causal=False,
        window=40,
    ),
    mlp=Mlp(size=64, is_gated=True, activation="gelu_tanh"),
    norms=Norms(attention=RMS, mlp=RMS, q=RMS, k=RMS, attention_output=RMS, mlp_output=RMS),
)
# Qwen3-Embedding: a decoder without its output layer.
CAUSAL = LayerSpec(
    attention=Attention(num_heads=4, num_kv_heads=2, head_dim=16, rotary=Rotary(theta=1e4)),
    mlp=Mlp(size=64, is_gated=True, activation="silu"),
    norms=Norms(attention=RMS, mlp=RMS, q=RMS, k=RMS),
)

MEAN = Head(kind="embedding", pooling=("mean",), is_normalized=True)
BERT = ModelSpec(
    family="bert",
    vocab_size=VOCAB_SIZE,
    hidden_size=48,
    max_positions=MAX_POSITIONS,
    embedding=Embedding(positions=LearnedPositions(offset=2), num_token_types=2, norm=LAYER_NORM),
    layers=(POST_NORM, POST_NORM),
    final_norm=None,
    output=None,
    head=MEAN,
)
MODERN = replace(
    BERT,
    embedding=Embedding(norm=LAYER_NORM),
    layers=(replace(GLOBAL, norms=Norms(mlp=LAYER_NORM)), LOCAL, LOCAL, GLOBAL),
    final_norm=LAYER_NORM,
)
EMBEDDING_GEMMA = replace(
    MODERN, embedding=Embedding(multiplier=7.0), layers=(GEMMA, GEMMA), final_norm=RMS
)
QWEN = replace(
    MODERN,
    embedding=Embedding(),
    layers=(CAUSAL, CAUSAL),
    final_norm=RMS,
    head=Head(kind="embedding", pooling=("last",), is_normalized=True),
)
ENCODERS: dict[str, ModelSpec] = {
    "bert": BERT,
    "modern": MODERN,
    "embedding-gemma": EMBEDDING_GEMMA,
    "qwen": QWEN,
}

HEADS: dict[str, Head] = {
    **{name: Head(kind="embedding", pooling=(name,)) for name in POOLINGS},
    "several": Head(kind="embedding", pooling=("max", "cls", "mean"), is_normalized=True),
    "ends": Head(kind="embedding", pooling=("last", "cls")),
    "dense": Head(
        kind="embedding",
        pooling=("mean", "last"),
        steps=(
            HeadStep(size=40, activation="tanh"),
            HeadStep(size=32, has_bias=False, norm=LAYER_NORM),
        ),
        is_normalized=True,
    ),
    "one-label": Head(
        kind="classification",
        pooling=("cls",),
        steps=(HeadStep(size=48, activation="tanh"), HeadStep(size=1)),
    ),
    "labels": Head(
        kind="classification",
        pooling=("mean",),
        steps=(
            HeadStep(size=48, activation="gelu", norm=RMS),
            HeadStep(size=3, activation="sigmoid"),
        ),
    ),
    "token-labels": Head(kind="classification", token_steps=(HeadStep(size=5),)),
    "colbert": Head(
        kind="token_vectors",
        token_steps=(HeadStep(size=24, has_bias=False),),
        is_normalized=True,
    ),
    "splade": Head(
        kind="sparse",
        token_steps=(
            HeadStep(size=48, activation="gelu", norm=LAYER_NORM),
            HeadStep(size=VOCAB_SIZE, is_tied=True),
        ),
        pooling=("max_log_relu",),
    ),
    "tokens": Head(kind="token_vectors", is_normalized=True),
}
