"""Draws models of any sizes whose layers may differ, for tests of counts."""

from hypothesis import strategies as st

from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, LearnedPositions, ModelSpec, Output
from paredown.spec.norm import Norm, Norms
from paredown.spec.rotary import Rotary

NORMS = st.sampled_from([Norm(kind="rms", eps=1e-5), Norm(kind="layer", eps=1e-6)])
MLPS = st.builds(
    Mlp,
    size=st.sampled_from([8, 24]),
    is_gated=st.booleans(),
    activation=st.just("silu"),
    bias=st.booleans(),
)


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    num_kv_heads = draw(st.integers(1, 3))
    return Attention(
        num_heads=num_kv_heads * draw(st.integers(1, 3)),
        num_kv_heads=num_kv_heads,
        head_dim=draw(st.sampled_from([4, 8])),
        rotary=Rotary(theta=1e4),
        window=draw(st.sampled_from([None, 5, 11])),
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
    )


@st.composite
def experts(draw: st.DrawFn) -> Experts:
    num = draw(st.integers(1, 5))
    return Experts(
        num=num,
        num_per_token=draw(st.integers(1, num)),
        size=draw(st.sampled_from([4, 12])),
        is_normalized=True,
        is_gated=draw(st.booleans()),
        activation="silu",
        shared_size=draw(st.sampled_from([None, 20])),
    )


@st.composite
def layers(draw: st.DrawFn) -> LayerSpec:
    norm, head_norm = draw(NORMS), draw(st.none() | NORMS)
    output_norm = draw(st.none() | NORMS)
    return LayerSpec(
        attention=draw(attentions()),
        mlp=draw(MLPS | experts()),
        norms=Norms(attention=norm, mlp=norm, q=head_norm, k=head_norm, mlp_output=output_norm),
    )


@st.composite
def specs(draw: st.DrawFn) -> ModelSpec:
    """Draws one to four layers, some of them alike."""
    kinds = draw(st.lists(layers(), min_size=1, max_size=3))
    picked = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    positions = draw(st.none() | st.builds(LearnedPositions, offset=st.integers(0, 2)))
    return ModelSpec(
        family="made-up",
        vocab_size=draw(st.integers(1, 60)),
        hidden_size=draw(st.sampled_from([8, 16])),
        max_positions=draw(st.integers(1, 64)),
        embedding=Embedding(positions=positions),
        layers=tuple(picked),
        final_norm=draw(NORMS),
        output=Output(is_tied=draw(st.booleans())),
    )
