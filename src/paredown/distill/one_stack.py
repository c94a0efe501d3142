"""Students and their teachers have one stack of layers."""

from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint


def check_one_stack(teacher: Checkpoint) -> None:
    """Raises UnsupportedError for an encoder-decoder, whose texts come in two parts."""
    if teacher.spec.encoder is not None:
        raise UnsupportedError(
            "training runs one stack of layers on a text, and an encoder-decoder has two",
            seen=f"{teacher.path}, family {teacher.spec.family}",
            remedy="Compress it without training (`paredown compress --recipe gptq-int4-g64`), or "
            "distill another model.",
        )
