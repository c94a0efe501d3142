"""Tells whether the embedding is held once, as the output layer."""

from paredown.models.checkpoint import Checkpoint
from paredown.spec.run_form import run_form


def embedding_is_output(checkpoint: Checkpoint) -> bool:
    """Returns whether rows of the embedding are read from the output layer. This needs tied
    weights with the same numbers, in a format whose single rows can be read. A draft model whose
    output layer is rounded at load keeps its own table."""
    stored = checkpoint.embedding_spec()
    if not checkpoint.spec.is_tied:
        return False
    if checkpoint.weight_specs()[checkpoint.names.embedding] != stored:
        return False
    return run_form(stored, checkpoint.spec.hidden_size).has_rows
