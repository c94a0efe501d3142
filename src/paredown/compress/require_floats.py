"""Compression requires weights that are not already quantized."""

from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint


def require_floats(source: Checkpoint) -> None:
    """Raises UnsupportedError for a checkpoint with any weight stored as codes."""
    if source.is_quantized:
        raise UnsupportedError(
            "the checkpoint is compressed already",
            seen=f"{source.path}, {', '.join(_formats(source))}",
            remedy="Give the original, so that errors do not add up; or take this one for the "
            "original, and have the proof say so: --from-quantized (paredown.FromQuantized).",
        )


def _formats(source: Checkpoint) -> list[str]:
    """Returns the names of its quantized formats, the commonest first."""
    coded = [form.name for form in source.forms.values()]
    coded += [block.name for block in source.blocks.values() if block.is_quantized]
    return sorted(dict.fromkeys(coded), key=lambda name: -coded.count(name))
