"""Converts a checkpoint from one format to another. Between quantized formats codes, scales and
zero points stay the same; a float target gets the dequantized weights.

A target is a function of a checkpoint, an output path, a progress callback, and a callback before
a folder appears. It raises UnsupportedError, with the module's name, for weights that it cannot
express, before anything appears.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paredown.compress.convert.float_folder import write_floats
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS, GGUFFormats
from paredown.compress.convert.quantized_folder import write_quantized
from paredown.compress.convert.write_gguf import check_write, write_gguf
from paredown.compress.importance import Importance
from paredown.compress.portability import portability_notes
from paredown.compress.size import checkpoint_bits_per_weight
from paredown.errors import ConfigError
from paredown.formats.stored.table import STORED_FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.output_folder import Finish
from paredown.progress import OnProgress
from paredown.spec.weight import WeightSpec

GGUF_SUFFIX = ".gguf"


def _gguf(
    formats: GGUFFormats | None,
    source: Checkpoint,
    output: Path,
    on_progress: OnProgress,
    finish: Finish,
    fitting: "Fitting",
) -> "Converted":
    """Writes a GGUF file. `formats` None keeps every code; others quantize floats. `finish` is
    called when the file is complete; if it raises, the file is removed."""
    _check_suffix(output)
    written = write_gguf(
        source,
        output,
        on_progress,
        formats=formats,
        importance=fitting.importance,
        num_threads=fitting.num_threads,
    )
    try:
        finish(output)
    except BaseException:
        output.unlink(missing_ok=True)
        raise
    return Converted(clamped=written.clamped, notes=written.notes)


def _folder(
    write: Callable[[Checkpoint, Path, OnProgress, Finish], "Clamped"],
    source: Checkpoint,
    output: Path,
    on_progress: OnProgress,
    finish: Finish,
    fitting: "Fitting",
) -> "Converted":
    """Writes a folder, in which nothing is fitted."""
    return Converted(clamped=write(source, output, on_progress, finish), notes=())


def _check_suffix(output: Path) -> None:
    if output.suffix != GGUF_SUFFIX:
        raise ConfigError(
            "a GGUF checkpoint is one file, whose name ends so",
            seen=output,
            remedy=f"Name it {output.with_suffix(GGUF_SUFFIX)}.",
        )


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """The importance by which GGUF's K-quants are fitted, and the number of threads."""

    importance: Importance | None = None
    num_threads: int = 1


# The number of values beyond the target's range that became its largest, by tensor.
Clamped = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The result of a target: values beyond its range, and what was done differently than asked."""

    clamped: Clamped
    notes: tuple[str, ...]


Conversion = Callable[[Checkpoint, Path, OnProgress, Finish, Fitting], Converted]
_FITTING = Fitting()

# The targets that keep the codes of a quantized source.
CODE_CONVERSIONS: dict[str, Conversion] = {
    **{
        name: partial(_folder, partial(write_quantized, stored))
        for name, stored in STORED_FORMATS.items()
        if stored.holds is WeightSpec
    },
    "gguf": partial(_gguf, None),
}
CONVERSIONS: dict[str, Conversion] = {
    **CODE_CONVERSIONS,
    **{name: partial(_gguf, formats) for name, formats in GGUF_FORMATS.items()},
    "bf16": partial(_folder, partial(write_floats, "bf16")),
    "fp16": partial(_folder, partial(write_floats, "fp16")),
    "fp32": partial(_folder, partial(write_floats, "fp32")),
}


@dataclass(frozen=True, kw_only=True)
class ConvertResult:
    """`notes`    what the source asks for that the target lacks, and what was done differently
    `clamped`  see Clamped
    """

    target: str
    path: Path
    bits_per_weight: float
    file_bytes: int
    notes: tuple[str, ...]
    clamped: Clamped


def convert(
    source: Checkpoint,
    output: Path,
    target: str,
    on_progress: OnProgress | None = None,
    finish: Finish | None = None,
    fitting: Fitting = _FITTING,
) -> ConvertResult:
    """Writes `source` in the format `target` to `output`, which appears whole or not at all.
    `finish` may add to it; if it raises, nothing is left behind. `fitting` is for the targets of
    `takes_importance`.

    Raises ConfigError for an unknown target, UnsupportedError for weights that it cannot express,
    CheckpointError for damaged ones, and OutputError if `output` exists or cannot be written.
    """
    _check_target(target)
    done = CONVERSIONS[target](
        source,
        output,
        on_progress or (lambda what, share: None),
        finish or (lambda path: None),
        fitting,
    )
    written = Checkpoint.open(output)
    return ConvertResult(
        target=target,
        path=output,
        bits_per_weight=checkpoint_bits_per_weight(written, source.spec),
        file_bytes=written.file_bytes,
        notes=(
            *source.notes,
            *_dropped(source, written, target),
            *portability_notes(written),
            *done.notes,
        ),
        clamped=done.clamped,
    )


def takes_importance(target: str) -> bool:
    """Returns whether the target uses the importance of columns."""
    return target in GGUF_FORMATS and GGUF_FORMATS[target].is_mixture


def check_fitted(source: Checkpoint, output: Path, target: str) -> None:
    """Raises what `convert` would for a target of `takes_importance`, before any work."""
    _check_suffix(output)
    check_write(source, output, GGUF_FORMATS[target])


def _check_target(target: str) -> None:
    if target not in CONVERSIONS:
        known = ", ".join(CONVERSIONS)
        raise ConfigError("there is no such format", seen=target, remedy=f"Known are {known}.")


def keeps_codes(source: Checkpoint, target: str) -> bool:
    """Returns whether the output keeps the codes of `source`, and so computes the same."""
    return source.is_quantized and target in CODE_CONVERSIONS


def _dropped(source: Checkpoint, written: Checkpoint, target: str) -> list[str]:
    """Returns notes on input rounding and formats of keys and values, which most formats cannot
    store."""
    notes = []
    if source.inputs and not written.inputs:
        chosen = " and ".join(dict.fromkeys(source.inputs.values()))
        notes.append(
            f"{target} has no place for how inputs are rounded; what runs the checkpoint has to be "
            f"told (--activations {chosen})"
        )
    if source.kv.section is None or written.kv.section is not None:
        return notes
    scales = f" and its {len(source.kv_scales)} stored scales" if source.kv_scales else ""
    note = f"{target} has no place for kv_cache_scheme{scales}: they are not written"
    if source.kv.dtype is not None:
        dtype = source.kv.dtype.removesuffix("-static")
        note += f"; what runs the checkpoint has to be told (--kv-dtype {dtype})"
    return [*notes, note]
