"""Checks that two models mean the same tokens, so that one can learn the other's distribution."""

from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


def check_same_vocabulary(student: Checkpoint, teacher: Checkpoint) -> None:
    """Raises UnsupportedError that names the first token that differs, or the sizes where the
    tables have another number of rows."""
    sizes = student.spec.vocab_size, teacher.spec.vocab_size
    remedy = "Name the model that this one was made from."
    if sizes[0] != sizes[1]:
        raise UnsupportedError(
            "the model and its teacher have vocabularies of different sizes",
            seen=f"{sizes[0]:,} tokens, and {sizes[1]:,} of the teacher",
            remedy=remedy,
        )
    own, taught = (_by_id(checkpoint) for checkpoint in (student, teacher))
    for token in sorted(own.keys() | taught.keys()):
        if own.get(token) != taught.get(token):
            raise UnsupportedError(
                "the model and its teacher mean different tokens by the same number",
                seen=f"token {token} is {own.get(token)!r}, and {taught.get(token)!r} of the "
                "teacher",
                remedy=remedy,
            )


def _by_id(checkpoint: Checkpoint) -> dict[int, str]:
    return {number: text for text, number in Tokenizer.open(checkpoint.path).vocabulary.items()}
