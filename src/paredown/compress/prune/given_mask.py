"""Masks that a user gives, in a safetensors file: one bool tensor for each linear module, under the
module's name in the checkpoint, with or without ".weight". It is true where a weight stays.

Shapes: O output rows, I input columns. A mask is [out, in] whatever way the checkpoint stores the
weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from paredown.compress.prune.method import Pruned, Seen
from paredown.compress.prune.pattern import NOfM, Pattern
from paredown.errors import ConfigError
from paredown.models.files.safetensors_file import MappedTensors, read_safetensors

_DTYPE = "BOOL"
_SUFFIX = ".weight"


@dataclass(frozen=True, kw_only=True)
class GivenMask:
    """Prunes each module by its mask in the file at `path`; values that stay are kept."""

    needs_hessian: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False

    path: str

    def check(self, pattern: Pattern) -> None:
        """Accepts every pattern; `prune` checks the masks against it."""

    def check_modules(self, shapes: Mapping[str, tuple[int, int]], pattern: Pattern) -> None:
        """Checks the file before any work: it must have a mask for each of the modules, of its
        shape (out, in), and none for another. Raises CheckpointError for a file that cannot be
        read, ConfigError for a mask that does not fit."""
        for module, shape in shapes.items():
            self._check(module, shape)
        for name in self._masks:
            if name.removesuffix(_SUFFIX) not in shapes:
                raise ConfigError(
                    f"{self.path} has a mask for no module that is pruned",
                    seen=name,
                    remedy="Name masks after the modules of the checkpoint, and prune all that "
                    "have one (targets).",
                )

    def prune(self, weight_OI: Tensor, pattern: Pattern, seen: Seen) -> Pruned:
        """Prunes the module that `seen` names. A mask that removes another share than the pattern
        says is followed, and a note says so. Raises ConfigError for one that breaks n:m."""
        assert seen.module is not None
        self._check(seen.module, (weight_OI.shape[0], weight_OI.shape[1]))
        place = self._masks.places[self._name(seen.module)]
        bytes_OI = self._masks.raw[place.start : place.end].reshape(place.shape)
        mask_OI = torch.from_numpy(bytes_OI != np.uint8(0))
        notes = _pattern_notes(mask_OI, pattern, seen.module)
        mask_OI &= weight_OI != 0
        return Pruned(values_OI=weight_OI.masked_fill(~mask_OI, 0), mask_OI=mask_OI, notes=notes)

    @cached_property
    def _masks(self) -> MappedTensors:
        return read_safetensors(Path(self.path))

    def _name(self, module: str) -> str:
        return module if module in self._masks.places else f"{module}{_SUFFIX}"

    def _check(self, module: str, shape: tuple[int, int]) -> None:
        place = self._masks.places.get(self._name(module))
        if place is None:
            raise ConfigError(
                f"{self.path} has no mask for the module {module}",
                seen=f"{len(self._masks)} masks: {', '.join(sorted(self._masks)[:3])}",
                remedy="Add one of this name, true where a weight stays, or leave the module out "
                "of what is pruned (targets).",
            )
        if (place.dtype, place.shape) != (_DTYPE, shape):
            raise ConfigError(
                f"{self.path}: the mask of the module {module} does not fit its weight",
                seen=f"{place.dtype} {list(place.shape)} for {_DTYPE} {list(shape)}",
                remedy="Write a bool for each weight, [out, in], true where it stays.",
            )


def _pattern_notes(mask_OI: Tensor, pattern: Pattern, module: str) -> tuple[str, ...]:
    """Returns a note on a share that is not the pattern's. Raises ConfigError for a mask that
    breaks n:m."""
    if isinstance(pattern, NOfM):
        pattern.check_columns(mask_OI.shape[1])
        most = int(mask_OI.reshape(-1, pattern.m).sum(1).max())
        if most > pattern.n:
            raise ConfigError(
                f"the mask of the module {module} does not have the pattern {pattern.name}",
                seen=f"{most} of {pattern.m} neighbours stay",
                remedy="Give a mask with that pattern, or a share (50).",
            )
        return ()
    num_removed = int((~mask_OI).sum())
    if num_removed == pattern.num_removed(mask_OI.numel()):
        return ()
    share = 100 * num_removed / mask_OI.numel()
    return (f"the given mask removes {share:.1f} %, not {pattern.name} %",)
