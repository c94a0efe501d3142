"""Processes rows of logits in cache-sized blocks on all cores."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from paredown.kernels.probe import default_num_threads

Logits = npt.NDArray[np.float32]

# The number of logits that a thread processes at once.
_STRETCH_VALUES = 1 << 15


def over_rows(work: Callable[[Sequence[slice], tuple[int, int]], None], logits_TV: Logits) -> None:
    """Calls `work` once per core, in parallel, with its own slices of rows and the shape of the
    largest. (NumPy releases the GIL while it computes.) A row's result must not depend on other
    rows."""
    num_rows, size = logits_TV.shape
    step = max(1, _STRETCH_VALUES // size)
    stretches = [slice(at, min(at + step, num_rows)) for at in range(0, num_rows, step)]
    num_threads = default_num_threads()
    with ThreadPoolExecutor(num_threads) as pool:
        shares = [stretches[first::num_threads] for first in range(num_threads)]
        for done in [pool.submit(work, share, (step, size)) for share in shares if share]:
            done.result()
