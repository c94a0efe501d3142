"""What the cost model needs of a checkpoint beside its spec: the formats it is stored in."""

from paredown.cost.model_formats import ModelFormats
from paredown.evaluate.measurement import linear_format
from paredown.models.checkpoint import Checkpoint


def stored_formats(checkpoint: Checkpoint) -> ModelFormats:
    """Of most linear layers, of the output layer, of the embedding as the core keeps it, of keys
    and values as the files ask."""
    specs, names = checkpoint.weight_specs(), checkpoint.names
    own = names.embedding if checkpoint.spec.tied_embeddings else names.output
    embedding = specs[names.embedding]
    return ModelFormats(
        linear=linear_format(checkpoint),
        output=specs[own],
        # The core reads rows of floats alone (engine/native/pack_weights.py).
        embedding_bits=16 if embedding.is_quantized else embedding.bits,
        kv_dtype=checkpoint.kv_dtype,
    )
