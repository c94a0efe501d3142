"""CompressResult: what compressing a checkpoint made."""

from dataclasses import dataclass
from pathlib import Path

from paredown.compress.prune.sparsity import Sparsity
from paredown.compress.schemes import SchemeRow
from paredown.models.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class CompressResult:
    """The written checkpoint, and what was not done as asked.

    `bits_per_weight`  bits of all stored tensors over the parameters of the source
    `file_bytes`       size of the safetensors files
    `num_quantized`    linear layers stored as codes, including the output layer
    `kept`             tensors left unchanged in a quantized format (norms, embeddings, ...)
    `untied`           the output layer was tied to the embedding and became a tensor of its own
    `clamped`          values beyond the format's range that became its largest, by tensor
    `schemes`          the schemes of the linear layers
    `sparsity`         the zeros of the modules that were pruned, now or before; None without any
    `notes`            notes of the methods: a damping that had to grow, a fallback, ...
    `calibration`      the calibration text; None if none was needed
    `predicted_bytes`  peak memory of the calibration
    `predicted_disk_bytes`  peak disk space of its activations
    """

    name: str
    path: Path
    bits_per_weight: float
    file_bytes: int
    num_quantized: int
    kept: tuple[str, ...]
    untied: bool
    clamped: dict[str, int]
    schemes: tuple[SchemeRow, ...]
    sparsity: Sparsity | None = None
    notes: tuple[str, ...] = ()
    calibration: str | None = None
    predicted_bytes: int | None = None
    predicted_disk_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class MadeLayers:
    """A checkpoint made of the same source with the same calibration, by a recipe whose layers can
    be reused (Recipe.has_layers_of), and its notes."""

    checkpoint: Checkpoint
    notes: tuple[str, ...]
