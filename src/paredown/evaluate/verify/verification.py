"""Verification: measures a written checkpoint beside its original, and records how to recognise it.

Quality is measured through the serving executor (evaluate/quality/quality.py), with the text and
protocol of evaluate/texts/text.py. Layer errors are measured on the PyTorch decoder.
"""

import math
import platform
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy
import tokenizers
import torch

import paredown
from paredown.evaluate.quality.layer_error import LayerError, layer_errors, layers_correspond
from paredown.evaluate.quality.measurement import Measurement, make_measurement
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.texts.text import EvalText
from paredown.evaluate.verify.fingerprint import Fingerprint, make_fingerprint
from paredown.evaluate.verify.verification_file import write_verification
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.hub.hub_source import HubSource, model_name
from paredown.progress import OnProgress
from paredown.spec.weight import ActivationDType

# Layer errors are means over tokens and settle early.
LAYER_TOKENS = 512
_OPTIONS = RunOptions()
_VERSIONS = {"numpy": numpy, "tokenizers": tokenizers, "torch": torch}


@dataclass(frozen=True, kw_only=True)
class Verification:
    """`compressed` and `original` are measured on the same tokens, as `protocol` says.
    `layer_errors` is empty where the layers are not those of the original. `notes` say
    what was not done as the recipe asked, and what either checkpoint holds differently from its
    files. `hub` is the repository and commit of the original. `activations` is what the compressed
    linear layers rounded their inputs to; None means what their formats say."""

    recipe: str
    compressed: Measurement
    original: Measurement
    layer_errors: list[LayerError]
    protocol: str
    fingerprint: Fingerprint
    notes: tuple[str, ...] = ()
    hub: HubSource | None = None
    activations: ActivationDType | None = None

    @property
    def worst_layers(self) -> list[LayerError]:
        """Returns the layers by their own error, the worst first."""
        return sorted(self.layer_errors, key=lambda one: -one.own)

    def figures(self) -> dict[str, object]:
        """Returns everything that is meant for people, as JSON."""
        return {
            "recipe": self.recipe,
            "compressed": _measured(self.compressed),
            "original": _measured(self.original),
            "layer_errors": [
                {name: _finite(value) for name, value in asdict(one).items()}
                for one in self.layer_errors
            ],
            "protocol": self.protocol,
            "activations": self.activations,
            "notes": list(self.notes),
            **({} if self.hub is None else {"hub": self.hub.as_json()}),
            "versions": versions(),
        }

    def write(self, folder: Path) -> None:
        """Writes verification.json to `folder`. Raises OutputError."""
        write_verification(folder, self.figures(), self.fingerprint)


def verify(
    original: Checkpoint,
    compressed: Checkpoint,
    text: EvalText,
    *,
    recipe: str,
    reference: LoadedExecutor | None = None,
    options: RunOptions = _OPTIONS,
    notes: tuple[str, ...] = (),
    on_progress: OnProgress | None = None,
) -> Verification:
    """Measures both checkpoints. `reference` is the loaded original, if the caller has it.
    `options` set the threads of both, and the activations of the compressed one. Raises
    CheckpointError when either predicts NaN or infinity, CapacityError when the two do not fit in
    memory together, and UnsupportedError for a model that the native core does not run."""
    progress = on_progress or (lambda what, share: None)
    pages = num_pages_for(text)
    if reference is None:
        reference = load_executor(original, RunOptions(num_pages=pages, threads=options.threads))
    executor = load_executor(compressed, replace(options, num_pages=pages))
    (quality,), own = measure_quality(
        [executor],
        text,
        reference,
        lambda done, total: progress("predicting the text", 0.8 * done / total),
    )
    assert own is not None
    own.require_numbers(str(original.path))
    quality.require_numbers(f"the model made by {recipe}")
    errors, told = _layer_errors(original, compressed, text, progress)
    name = model_name(original.path)
    return Verification(
        recipe=recipe,
        compressed=make_measurement(
            recipe,
            compressed,
            quality=quality,
            original=original,
            held_bytes=executor.weight_bytes,
        ),
        original=make_measurement(name, original, quality=own, held_bytes=reference.weight_bytes),
        layer_errors=errors,
        protocol=f"{text.protocol}; {told}",
        fingerprint=make_fingerprint(compressed, executor),
        notes=all_notes(notes, compressed, original),
        hub=HubSource.of(original.path),
        activations=options.activations,
    )


def _layer_errors(
    original: Checkpoint, compressed: Checkpoint, text: EvalText, progress: OnProgress
) -> tuple[list[LayerError], str]:
    """Returns the errors of layers, and says on what they were measured."""
    if not layers_correspond(original, compressed):
        return [], "layers are not compared, since they are no longer the original's"
    first = text.windows[0]
    tokens, read = first.inputs[:LAYER_TOKENS], first.encoder_ids[:LAYER_TOKENS]
    errors = layer_errors(
        original,
        compressed,
        tokens,
        lambda done, total: progress("comparing layers", 0.8 + 0.2 * done / total),
        read,
    )
    told = f"errors of layers on the first {len(tokens)} of them"
    return errors, f"{told}, those of the encoder first" if read else told


def all_notes(
    notes: tuple[str, ...], compressed: Checkpoint, original: Checkpoint
) -> tuple[str, ...]:
    """Returns each note once."""
    own = [note for note in compressed.notes if note not in notes]
    theirs = [f"the original: {note}" for note in original.notes if note not in (*notes, *own)]
    return (*notes, *own, *theirs)


def versions() -> dict[str, str]:
    """Returns the versions of everything that may affect the figures."""
    return {
        "paredown": paredown.__version__,
        "python": platform.python_version(),
        **{name: str(module.__version__) for name, module in _VERSIONS.items()},
    }


def _measured(measurement: Measurement) -> dict[str, object]:
    """Returns the measurement without fields that verification does not measure."""
    skipped = [name for name, value in asdict(measurement).items() if value is None]
    return {name: value for name, value in measurement.as_json().items() if name not in skipped}


def _finite(value: float) -> float | None:
    """Returns None for infinity, which JSON lacks."""
    return value if math.isfinite(value) else None
