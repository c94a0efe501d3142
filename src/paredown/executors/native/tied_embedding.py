"""Whether the embedding is held once, as the output layer."""

from paredown.models.checkpoint import Checkpoint
from paredown.spec.run_form import run_form


def embedding_is_output(checkpoint: Checkpoint) -> bool:
    """Whether rows of the embedding are read out of the output layer: the two are tied, hold the
    same numbers, and single rows of such a weight can be read. A draft model whose output layer is
    rounded at load has a table of its own beside it."""
    stored = checkpoint.embedding_spec()
    if not checkpoint.spec.output.is_tied:
        return False
    if checkpoint.weight_specs()[checkpoint.names.embedding] != stored:
        return False
    return run_form(stored, checkpoint.spec.hidden_size).has_rows
