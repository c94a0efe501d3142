"""Small models for tests that need nothing but their sizes."""

from paredown.spec.model import LearnedPositions, ModelSpec, Rotary


def gated(**changes: object) -> ModelSpec:
    """Grouped heads, a gated MLP, an output layer of its own."""
    fields: dict[str, object] = {
        "family": "llama",
        "vocab_size": 50,
        "hidden_size": 16,
        "num_layers": 3,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "intermediate_size": 24,
        "max_positions": 64,
        "positions": Rotary(theta=1e4),
        "norm": "rms",
        "norm_eps": 1e-5,
        "activation": "silu",
        "gated": True,
    }
    return ModelSpec(**{**fields, **changes})  # type: ignore[arg-type]


def plain() -> ModelSpec:
    """As many heads of keys as of queries, together as wide as the hidden state, no gate."""
    return gated(
        family="gpt2",
        num_kv_heads=4,
        head_dim=4,
        positions=LearnedPositions(),
        norm="layer",
        activation="gelu",
        gated=False,
        tied_embeddings=True,
    )
