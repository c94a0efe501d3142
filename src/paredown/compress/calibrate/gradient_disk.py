"""Predicts how much disk the gradients of a model take at their peak (gradients.py)."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from paredown.compress.calibrate.activation_file import ITEM_BYTES
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.disk import free_bytes
from paredown.compress.calibrate.workspace import FINISHED
from paredown.errors import CapacityError
from paredown.models.check_tensors import linear_modules
from paredown.models.checkpoint import Checkpoint
from paredown.units import format_bytes

# The gradients that a step reads and those that it writes.
_NUM_GRADIENTS = 2
# The mean, the mean square, and the largest.
_NUM_SUMS = 3


@dataclass(frozen=True, kw_only=True)
class GradientDisk:
    """The bytes of `activations` between layers, and of the `sums` of all modules."""

    activations: int
    sums: int

    @property
    def total(self) -> int:
        return self.activations + self.sums

    def require(self, folder: Path) -> None:
        """Raises CapacityError, with the arithmetic, if the disk has too little room. `folder` is
        the workspace, which need not exist; its files count as free, since they are used or
        removed."""
        there, free = free_bytes(folder)
        free += sum(file.stat().st_size for file in folder.glob(f"{FINISHED}*"))
        if self.total <= free:
            return
        raise CapacityError(
            "the gradients of the model do not fit on the disk",
            seen=f"activations {format_bytes(self.activations)}, sums {format_bytes(self.sums)}: "
            f"{format_bytes(self.total)} of {format_bytes(free)} free in {there}",
            remedy="Use fewer or shorter windows (--samples, --calibration-tokens), or write the "
            "output where there is more room.",
        )


def predict_gradient_disk(
    source: Checkpoint, calibration: Calibration, modules: Collection[str]
) -> GradientDisk:
    """Predicts the disk space for the gradients of the named modules."""
    spec = source.spec
    num_files = spec.num_layers + 1 + _NUM_GRADIENTS
    num_values = calibration.num_sequences * calibration.num_tokens * spec.hidden_size
    num_weights = sum(
        module.shape[0] * module.shape[1]
        for module in linear_modules(spec, source.names)
        if module.name in modules
    )
    return GradientDisk(
        activations=ITEM_BYTES * num_files * num_values,
        sums=ITEM_BYTES * _NUM_SUMS * num_weights,
    )
