"""Tells whether the embedding is held once, as the output layer or a step of the head."""

from paredown.models.checkpoint import Checkpoint
from paredown.spec.model import ModelSpec
from paredown.spec.run_form import run_form


def tied_step(spec: ModelSpec) -> str | None:
    """Returns the role of the head's step whose weight is the embedding, or None."""
    steps = {} if spec.head is None else spec.head.steps_by_role()
    return next((role for role, step in steps.items() if step.is_tied), None)


def embedding_is_output(checkpoint: Checkpoint) -> bool:
    """Returns whether rows of the embedding are read from the output layer, or from a step of the
    head. This needs tied weights with the same numbers, in a format whose single rows can be read.
    A draft model whose output layer is rounded at load keeps its own table."""
    stored, spec = checkpoint.embedding_spec(), checkpoint.spec
    if not spec.is_tied and (spec.generates or tied_step(spec) is None):
        return False
    if checkpoint.weight_specs()[checkpoint.names.embedding] != stored:
        return False
    return run_form(stored, checkpoint.spec.hidden_size).has_rows
