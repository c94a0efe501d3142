"""One threshold for the magnitudes of a whole model: the weights nearest 0 go, wherever they are.

A float32 that is not negative orders like its bits. The threshold is therefore found in two counts
of all weights: by the upper 16 bits, and by the lower 16 bits of those at the threshold. Memory
holds one module and these counts, for a model of any size.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paredown.compress.prune.pattern import Share
from paredown.errors import ConfigError
from paredown.formats.weight import CoreWeight
from paredown.models.checkpoint import Checkpoint

Bits = npt.NDArray[np.uint32]

_HALF_BITS = 16
_HALF = 1 << _HALF_BITS
# The weights that are counted at once.
_VALUES = 1 << 22


def global_shares(source: Checkpoint, modules: Collection[str], share: float) -> dict[str, Share]:
    """Returns the share of each named linear module by one threshold for all of them. Together
    they remove exactly `share` of their weights; of weights equal to the threshold, those of the
    first modules go.

    Every module keeps at least one weight, and the total is short by those that it would have
    given. Raises ConfigError if no module is named.
    """
    named = [one for one in _modules(source) if one.name in modules]
    if not named:
        raise ConfigError(
            "a threshold for the whole model has no module to look at",
            seen=f"{len(modules)} names, none of a linear module",
            remedy="Name modules of the model as targets.",
        )
    threshold, num_equal = _threshold(named, share)
    shares = {}
    for module in named:
        num_below, num_at = 0, 0
        for bits in module.bits():
            num_below += int(np.count_nonzero(bits < threshold))
            num_at += int(np.count_nonzero(bits == threshold))
        taken = min(num_at, num_equal)
        num_equal -= taken
        num_removed = min(num_below + taken, module.num_weights - 1)
        shares[module.name] = Share(share=num_removed / module.num_weights)
    return shares


@dataclass(frozen=True, kw_only=True)
class _Module:
    """A linear module; `layer` is None for the output layer."""

    source: Checkpoint
    name: str
    num_weights: int
    roles: tuple[str, ...] = ()
    layer: int | None = None

    def bits(self) -> Iterator[Bits]:
        """Yields the bits of the magnitudes of its weights, some at a time."""
        for weight in self._weights():
            flat = weight.dequantize().reshape(-1)
            for start in range(0, flat.size, _VALUES):
                yield np.abs(flat[start : start + _VALUES]).view(np.uint32)
        self.source.release()

    def _weights(self) -> Iterator[CoreWeight]:
        if self.layer is None:
            yield self.source.output()
            return
        for role in self.roles:
            yield self.source.linear(role, self.layer)


def _modules(source: Checkpoint) -> Iterator[_Module]:
    spec, names = source.spec, source.names
    for layer in range(spec.num_layers):
        shapes = spec.linear_shapes(layer)
        for name, roles in names.modules(shapes, layer).items():
            num_weights = sum(shapes[role][0] * shapes[role][1] for role in roles)
            yield _Module(
                source=source, name=name, num_weights=num_weights, roles=roles, layer=layer
            )
    if spec.has_own_output:
        num_weights = spec.vocab_size * spec.hidden_size
        yield _Module(source=source, name=names.output, num_weights=num_weights)


def _threshold(modules: list[_Module], share: float) -> tuple[int, int]:
    """Returns the bits of the threshold, and how many of the weights equal to it go."""
    num_weights = sum(module.num_weights for module in modules)
    wanted = Share(share=share).num_removed(num_weights)
    uppers = _count(modules, lambda bits: bits >> np.uint32(_HALF_BITS))
    upper, wanted = _place(uppers, wanted)
    lowers = _count(
        modules, lambda bits: bits[bits >> np.uint32(_HALF_BITS) == upper] & np.uint32(_HALF - 1)
    )
    lower, wanted = _place(lowers, wanted)
    return upper << _HALF_BITS | lower, wanted


def _place(counts: npt.NDArray[np.int64], wanted: int) -> tuple[int, int]:
    """Returns the first place at which as many are reached, and how many are still wanted there."""
    sums = np.cumsum(counts)
    place = int(np.searchsorted(sums, wanted))
    return place, wanted - int(sums[place] - counts[place])


def _count(modules: list[_Module], half_of: Callable[[Bits], Bits]) -> npt.NDArray[np.int64]:
    counts = np.zeros(_HALF, np.int64)
    for module in modules:
        for bits in module.bits():
            counts += np.bincount(half_of(bits), minlength=_HALF)
    return counts
