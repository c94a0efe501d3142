"""What the cost model needs of a checkpoint beside its spec: the formats it is stored in."""

from collections import Counter

from paredown.cost.model_formats import ModelFormats
from paredown.models.checkpoint import Checkpoint
from paredown.models.roles import linear_places
from paredown.models.running_formats import running_specs


def stored_formats(checkpoint: Checkpoint) -> ModelFormats:
    """Of most linear layers as they run, of the output layer, of the embedding as the core keeps
    it, of keys and values as the files ask."""
    specs, names = running_specs(checkpoint), checkpoint.names
    linear = Counter(
        specs[checkpoint.linear_name(role, layer)] for role, layer in linear_places(checkpoint.spec)
    )
    own = names.embedding if checkpoint.spec.output.is_tied else names.output
    embedding = specs[names.embedding]
    return ModelFormats(
        linear=linear.most_common(1)[0][0],
        output=specs[own],
        # The core reads rows of floats alone (engine/native/pack_weights.py).
        embedding_bits=16 if embedding.is_quantized else embedding.bits,
        kv_dtype=checkpoint.kv_dtype,
    )
