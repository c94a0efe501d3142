"""samples-N: N independent draws from each distribution (random sampling, arXiv 2503.16870).

    p(v) is estimated by  (number of draws that gave v) / N

The estimate is unbiased, and so is the gradient of every loss that is linear in p, as the forward
KL divergence is. The divergence's value is not: it has the estimate's own entropy, on which no
gradient depends. The same draws at every pass leave that a constant.

    numbers u16 [N targets], of distinct tokens | their ids u16 or u32 | their counts u8 or u16
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paredown.distill.chunked_logits import chunk_rows
from paredown.distill.inverse_transform import drawn
from paredown.distill.teacher import LogProbabilities
from paredown.distill.teacher_logits.keep import Bytes, checked_ids, checked_length, id_dtype
from paredown.errors import ConfigError

_MOST_DRAWS = (1 << 16) - 1
_NUMBERS = np.dtype("<u2")


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Implements Keep. Raises ConfigError for numbers of draws out of range."""

    num_draws: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_draws <= _MOST_DRAWS:
            raise ConfigError(
                "so many draws cannot be kept of a distribution",
                seen=self.num_draws,
                remedy=f"Give a number from 1 to {_MOST_DRAWS:,}; 50 is a good one.",
            )

    @property
    def name(self) -> str:
        return f"samples-{self.num_draws}"

    @property
    def is_positive(self) -> bool:
        return False

    @property
    def is_linear(self) -> bool:
        return True

    @property
    def rule(self) -> str:
        return "unbiased: the share of the draws"

    def num_exact(self, vocab_size: int) -> int:
        return 0

    def check(self, vocab_size: int) -> None:
        """Any vocabulary can be drawn from."""

    def least_bytes(self, num_targets: int, vocab_size: int) -> int:
        each = id_dtype(vocab_size).itemsize + self._count_dtype.itemsize
        return num_targets * (_NUMBERS.itemsize + each)

    def encode(
        self,
        known: LogProbabilities,
        num_targets: int,
        vocab_size: int,
        random: np.random.Generator,
    ) -> bytes:
        draws_NS = torch.from_numpy(random.random((num_targets, self.num_draws)))
        numbers, ids, counts = [], [], []
        step = chunk_rows(vocab_size)
        for start in range(0, num_targets, step):
            rows = slice(start, min(start + step, num_targets))
            drawn_NS = drawn(known(rows), draws_NS[rows]).sort(-1).values
            is_new_NS = torch.ones_like(drawn_NS, dtype=torch.bool)
            is_new_NS[:, 1:] = drawn_NS[:, 1:] != drawn_NS[:, :-1]
            starts = is_new_NS.flatten().nonzero()[:, 0]
            ends = torch.cat([starts[1:], torch.tensor([drawn_NS.numel()])])
            numbers.append(is_new_NS.sum(-1).numpy())
            ids.append(drawn_NS.flatten()[starts].numpy())
            counts.append((ends - starts).numpy())
        parts = (
            (numbers, _NUMBERS),
            (ids, id_dtype(vocab_size)),
            (counts, self._count_dtype),
        )
        return b"".join(one.astype(dtype).tobytes() for arrays, dtype in parts for one in arrays)

    def decode(self, data: Bytes, num_targets: int, vocab_size: int) -> LogProbabilities:
        ids_dtype = id_dtype(vocab_size)
        head = num_targets * _NUMBERS.itemsize
        if data.size < head:
            raise ValueError(f"{data.size} bytes for {num_targets} targets")
        numbers_N = np.frombuffer(data, _NUMBERS, num_targets).astype(np.int64)
        total = int(numbers_N.sum())
        counts_at = head + total * ids_dtype.itemsize
        checked_length(data, counts_at + total * self._count_dtype.itemsize)
        ids = checked_ids(np.frombuffer(data, ids_dtype, total, head), vocab_size)
        counts = np.frombuffer(data, self._count_dtype, total, counts_at).astype(np.float32)
        places = np.repeat(np.arange(num_targets), numbers_N)
        sums_N = np.bincount(places, counts, num_targets)
        if (sums_N != self.num_draws).any():
            raise ValueError(f"counts that do not add up to {self.num_draws}")
        starts = np.concatenate([[0], numbers_N.cumsum()])
        log_shares = torch.from_numpy(counts / np.float32(self.num_draws)).log()

        def log_probabilities(rows: slice) -> Tensor:
            first, last, _ = rows.indices(num_targets)
            own = slice(int(starts[first]), int(starts[max(first, last)]))
            log_p_NV = torch.full((max(0, last - first), vocab_size), -torch.inf, device="cpu")
            at = torch.from_numpy(places[own] - first), torch.from_numpy(ids[own])
            log_p_NV[at] = log_shares[own]
            return log_p_NV

        return log_probabilities

    @property
    def _count_dtype(self) -> np.dtype[np.unsignedinteger]:
        return np.dtype("u1") if self.num_draws < 1 << 8 else np.dtype("<u2")
