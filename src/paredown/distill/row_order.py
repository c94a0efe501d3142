"""RowOrder: the order in which training reads its rows, one shuffled pass after another."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class RowOrder:
    """An endless order. Each pass is shuffled by the seed and its own number, so a place in the
    order is one number: how many rows were read."""

    num_rows: int
    seed: int

    def rows(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Returns the indices of `count` rows from place `first` of the order."""
        places = np.arange(first, first + count)
        passes = places // self.num_rows
        found = np.empty(count, np.int64)
        for number in np.unique(passes):
            order = np.random.default_rng([self.seed, int(number)]).permutation(self.num_rows)
            here = passes == number
            found[here] = order[places[here] % self.num_rows]
        return found
