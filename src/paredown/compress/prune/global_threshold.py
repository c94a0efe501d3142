"""One threshold on |w| for several matrices: each loses what lies below it (Han et al., arXiv
1506.02626, prune layers by one quality parameter in the same way).

The threshold is exact: |w| as float32 bits are counted by their upper half, and then by the lower
half where the threshold lies. One matrix is in memory at a time. Of weights that equal the
threshold, those of the first matrices go.
"""

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from paredown.compress.prune.pattern import Share
from paredown.models.checkpoint import Checkpoint
from paredown.models.roles import linear_places

_HALF_BITS = 16
_NUM_BINS = 1 << _HALF_BITS


def global_shares(source: Checkpoint, modules: Collection[str], share: float) -> dict[str, Share]:
    """Returns by module the share of its weights that goes; together they are `share` of all."""
    sizes: dict[str, int] = {}
    upper = np.zeros(_NUM_BINS, np.int64)
    for name, bits in _magnitudes(source, modules):
        sizes[name] = sizes.get(name, 0) + bits.size
        upper += _counted(bits >> _HALF_BITS)
    num_removed = Share(share=share).num_removed(sum(sizes.values()))
    if num_removed == 0:
        return dict.fromkeys(sizes, Share(share=0.0))
    high, left = _bin_of(upper, num_removed)
    lower = np.zeros(_NUM_BINS, np.int64)
    for _, bits in _magnitudes(source, modules):
        lower += _counted(bits[bits >> _HALF_BITS == high] & (_NUM_BINS - 1))
    low, left = _bin_of(lower, left)
    threshold = high << _HALF_BITS | low
    removed = dict.fromkeys(sizes, 0)
    for name, bits in _magnitudes(source, modules):
        equal = min(left, int(np.count_nonzero(bits == threshold)))
        left -= equal
        removed[name] += int(np.count_nonzero(bits < threshold)) + equal
    return {name: Share(share=removed[name] / size) for name, size in sizes.items()}


def _magnitudes(
    source: Checkpoint, modules: Collection[str]
) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yields the bits of |w| as float32, which are in the order of the numbers."""
    wanted = set(modules)
    for role, layer in linear_places(source.spec):
        name = source.linear_name(role, layer)
        if name in wanted:
            yield name, _bits(source.linear(role, layer).dequantize())
            source.release()
    if source.names.output in wanted:
        yield source.names.output, _bits(source.output().dequantize())


def _bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0x7FFFFFFF)
    return bits.reshape(-1).astype(np.int64)


def _counted(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.bincount(bins, minlength=_NUM_BINS)


def _bin_of(counts: npt.NDArray[np.int64], rank: int) -> tuple[int, int]:
    """Returns the bin of the number with that rank, from 1, and its rank within the bin."""
    ends = np.cumsum(counts)
    found = int(np.searchsorted(ends, rank))
    return found, rank - int(ends[found] - counts[found])
