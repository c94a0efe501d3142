"""The floats that a job rounds, and the checkpoint that it measures its result beside."""

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

# What codes are dequantized to.
DEQUANTIZED_TO: ScaleDType = "bf16"


@dataclass(frozen=True, kw_only=True)
class FloatSource:
    """`original`  as the user has it: results are measured beside it
    `floats`    the same without codes: what is rounded; `original` itself where that has none
    `notes`     for the proof: that the original is quantized, and how
    """

    original: Checkpoint
    floats: Checkpoint
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FromQuantized:
    """A model that is to be taken for the original though it is quantized; jobs that round weights
    take it in the place of its path."""

    model: Checkpoint | Path | str | None


@contextmanager
def float_source(
    model: Checkpoint | FromQuantized | Path | str | None, on_progress: OnProgress | None = None
) -> Iterator[FloatSource]:
    """Opens what a job starts from. A quantized checkpoint is dequantized into a folder that is
    gone at the end, where it is a `FromQuantized`. Raises UnsupportedError for one that is
    quantized else, before any work."""
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
