"""The floats that a job rounds, and the original that its result is compared with."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paredown.compress.convert.convert import convert
from paredown.compress.require_floats import require_floats
from paredown.evaluate.quality.measurement import linear_format_name
from paredown.jobs.open_source import open_source
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress
from paredown.spec.weight import ScaleDType

# The dtype that codes are dequantized to.
DEQUANTIZED_TO: ScaleDType = "bf16"


@dataclass(frozen=True, kw_only=True)
class FloatSource:
    """`original`  the user's checkpoint, which results are compared with
    `floats`    the same without codes, for rounding; `original` itself where it has none
    `notes`     notes for the proof: that the original is quantized, and how
    """

    original: Checkpoint
    floats: Checkpoint
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FromQuantized:
    """Marks a quantized model that should count as the original. Jobs that round weights take it
    instead of the model's path."""

    model: Checkpoint | Path | str | None


@contextmanager
def float_source(
    model: Checkpoint | FromQuantized | Path | str | None, on_progress: OnProgress | None = None
) -> Iterator[FloatSource]:
    """Opens the checkpoint that a job starts from. A quantized one inside a `FromQuantized` is
    dequantized into a folder that is removed at the end. Raises UnsupportedError for any other
    quantized one, before any work."""
    if isinstance(model, FromQuantized):
        original = open_source(model.model)
    else:
        original = open_source(model)
        require_floats(original)
    if not original.is_quantized:
        yield FloatSource(original=original, floats=original)
        return
    with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
        report = on_progress or (lambda what, share: None)
        place = Path(folder) / original.path.resolve().stem
        convert(original, place, DEQUANTIZED_TO, lambda what, share: report("dequantizing", share))
        note = (
            f"the original is quantized itself ({linear_format_name(original)}): losses are those "
            "on top of its own"
        )
        yield FloatSource(original=original, floats=Checkpoint.open(place), notes=(note,))
