"""The tensors that a ModelSpec asks for, by role and shape, whatever a checkpoint calls them."""

from collections.abc import Iterator

from paredown.spec.model import ModelSpec


def linear_roles(spec: ModelSpec, layer: int) -> list[str]:
    """Returns the roles of one layer's linear layers: q, k, v, o, up, down(, gate), or those of its
    experts."""
    return list(spec.linear_shapes(layer))


def linear_places(spec: ModelSpec) -> Iterator[tuple[str, int]]:
    """Yields (role, layer) of every linear layer of the transformer layers, in order."""
    for layer in range(spec.num_layers):
        for role in linear_roles(spec, layer):
            yield role, layer


def layer_vectors(spec: ModelSpec, layer: int) -> dict[str, int]:
    """Returns the sizes of one layer's norms and biases by role: "attention_norm.weight", "q.bias",
    ..."""
    return spec.layers[layer].vector_sizes(spec.hidden_size)


def model_vectors(spec: ModelSpec) -> dict[str, int]:
    """Returns the sizes of the norms and biases outside the layers by role: "final_norm.weight",
    "embedding_norm.bias", "output.bias"."""
    return spec.vector_sizes()
