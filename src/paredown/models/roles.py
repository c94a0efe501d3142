"""The tensors that a ModelSpec asks for, by role and shape, whatever a checkpoint calls them."""

from collections.abc import Iterator

from paredown.spec.model import LearnedPositions, ModelSpec

QKV_ROLES = ("q", "k", "v")
MLP_ROLES = ("gate", "up", "down")


def linear_roles(spec: ModelSpec, layer: int = 0) -> list[str]:
    """Roles of one layer's linear layers: q, k, v, o, (gate,) up, down, or those of its experts.
    Without experts all layers are alike."""
    return list(spec.linear_shapes(layer))


def linear_places(spec: ModelSpec) -> Iterator[tuple[str, int]]:
    """(role, layer) of every linear layer of the transformer layers, in their order."""
    for layer in range(spec.num_layers):
        for role in linear_roles(spec, layer):
            yield role, layer


def has_bias(spec: ModelSpec, role: str) -> bool:
    if role in QKV_ROLES:
        return spec.qkv_bias
    return spec.attention_out_bias if role == "o" else spec.mlp_bias


def layer_vectors(spec: ModelSpec) -> dict[str, int]:
    """Sizes of one layer's norms and biases, by role: "attention_norm.weight", "q.bias", ... All
    layers have the same: no model with experts has biases in an MLP."""
    sizes = _norm_vectors(spec, "attention_norm") | _norm_vectors(spec, "mlp_norm")
    if spec.qk_norm:
        sizes |= {"q_norm.weight": spec.head_dim, "k_norm.weight": spec.head_dim}
    for role, (num_rows, _) in (spec.attention_shapes() | spec.mlp_shapes()).items():
        if has_bias(spec, role):
            sizes[f"{role}.bias"] = num_rows
    return sizes


def model_vectors(spec: ModelSpec) -> dict[str, int]:
    """Sizes of the norm after the last layer, by role."""
    return _norm_vectors(spec, "final_norm")


def position_embedding_shape(spec: ModelSpec) -> tuple[int, int] | None:
    if not isinstance(spec.positions, LearnedPositions):
        return None
    return spec.max_positions + spec.positions.offset, spec.hidden_size


def _norm_vectors(spec: ModelSpec, role: str) -> dict[str, int]:
    sizes = {f"{role}.weight": spec.hidden_size}
    if spec.norm == "layer":
        sizes[f"{role}.bias"] = spec.hidden_size
    return sizes
