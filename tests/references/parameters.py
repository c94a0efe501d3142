"""Parameters of a model, vector by vector and matrix by matrix, as a module would list them."""

from paredown.spec.experts import Experts
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec


def norm_size(layer: LayerSpec, hidden_size: int) -> int:
    norms, head_dim = layer.norms, layer.attention.head_dim
    total = 0
    for norm, size in (
        (norms.attention, hidden_size),
        (norms.mlp, hidden_size),
        (norms.attention_output, hidden_size),
        (norms.mlp_output, hidden_size),
        (norms.attention_sum, hidden_size),
        (norms.mlp_sum, hidden_size),
        (norms.q, head_dim),
        (norms.k, head_dim),
    ):
        if norm is not None:
            total += size + (size if norm.kind == "layer" else 0)
    return total


def attention_size(layer: LayerSpec, hidden_size: int) -> tuple[int, int]:
    """Weights, and biases."""
    attention = layer.attention
    weights = biases = 0
    for _ in range(attention.num_heads):
        weights += 2 * hidden_size * attention.head_dim
        biases += attention.head_dim if attention.qkv_bias else 0
    for _ in range(attention.num_kv_heads):
        weights += 2 * hidden_size * attention.head_dim
        biases += 2 * attention.head_dim if attention.qkv_bias else 0
    return weights, biases + (hidden_size if attention.out_bias else 0)


def mlp_size(mlp: Mlp, hidden_size: int) -> tuple[int, int]:
    num_matrices = 3 if mlp.is_gated else 2
    biases = (num_matrices - 1) * mlp.size + hidden_size if mlp.bias else 0
    return num_matrices * mlp.size * hidden_size, biases


def experts_size(experts: Experts, hidden_size: int, num: int) -> int:
    """Of so many experts, and of the shared one."""
    sizes = [experts.size] * num
    if experts.shared_size is not None:
        sizes.append(experts.shared_size)
    return sum((3 if experts.is_gated else 2) * size * hidden_size for size in sizes)


def linear_parameters(spec: ModelSpec, *, active: bool) -> int:
    """Weights of the linear layers of all layers, or those that a token passes."""
    total = 0
    for layer in spec.layers:
        total += attention_size(layer, spec.hidden_size)[0]
        if isinstance(layer.mlp, Experts):
            num = layer.mlp.num_per_token if active else layer.mlp.num
            total += experts_size(layer.mlp, spec.hidden_size, num)
        else:
            total += mlp_size(layer.mlp, spec.hidden_size)[0]
    return total


def other_parameters(spec: ModelSpec) -> int:
    hidden_size = spec.hidden_size
    total = spec.vocab_size * hidden_size
    if not spec.is_tied:
        total += spec.vocab_size * hidden_size
    if spec.embedding.positions is not None:
        for _ in range(spec.max_positions + spec.embedding.positions.offset):
            total += hidden_size
    total += hidden_size * (2 if spec.final_norm.kind == "layer" else 1)
    for layer in spec.layers:
        total += norm_size(layer, hidden_size) + attention_size(layer, hidden_size)[1]
        if isinstance(layer.mlp, Experts):
            num_outputs = layer.mlp.num + (layer.mlp.shared_size is not None)
            total += num_outputs * hidden_size
        else:
            total += mlp_size(layer.mlp, hidden_size)[1]
    return total
