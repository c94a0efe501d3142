"""The core's table of relative positions: what is added to a score, by head and distance."""

import math

import numpy as np
import numpy.typing as npt

from paredown.spec.attention import RelativePositions


def relative_table(
    relative: RelativePositions, biases_RH: npt.NDArray[np.float32], *, is_causal: bool
) -> npt.NDArray[np.float32]:
    """Returns [heads, 2 * max_distance + 1] from the buckets' numbers [buckets, heads]. Column
    `max_distance + d` is that of a key `d` tokens after the query."""
    reach = relative.max_distance
    buckets = [_bucket(relative, distance, is_causal) for distance in range(-reach, reach + 1)]
    return np.ascontiguousarray(biases_RH[buckets].T)


def _bucket(relative: RelativePositions, distance: int, is_causal: bool) -> int:
    """Returns the bucket of a key `distance` tokens after the query (arXiv 1910.10683, section
    2.1)."""
    num_buckets, first = relative.num_buckets, 0
    if is_causal:
        distance = max(-distance, 0)
    else:
        num_buckets //= 2
        first = num_buckets if distance > 0 else 0
        distance = abs(distance)
    num_exact = num_buckets // 2
    if distance < num_exact:
        return first + distance
    # In float32, as the models were trained: a distance on the border of two buckets stays on its
    # side.
    share = np.log(np.float32(distance) / np.float32(num_exact))
    share /= np.float32(math.log(relative.max_distance / num_exact))
    far = num_exact + int(share * np.float32(num_buckets - num_exact))
    return first + min(far, num_buckets - 1)
