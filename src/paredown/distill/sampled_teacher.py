"""SampledTeacher: a teacher of whose distribution only samples are seen (arXiv 2503.16870).

    p(v) is estimated by  (number of draws that gave v) / (number of draws)

The estimate is unbiased, and so is the gradient of the forward KL divergence, which is linear in p.
The divergence's value is not: it has the estimate's own entropy, on which no gradient depends.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from paredown.distill.batch import Batch
from paredown.distill.teacher import LogProbabilities, Teacher
from paredown.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SampledTeacher:
    """Implements Teacher by `num_draws` independent draws at each target of another one. A row's
    draws depend on its tokens and the seed alone, so neither threads nor parts change them. Raises
    ConfigError without a draw."""

    teacher: Teacher
    num_draws: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_draws < 1:
            raise ConfigError(
                "nothing is drawn from the teacher's distribution",
                seen=self.num_draws,
                remedy="Give at least one draw; 50 is a good number.",
            )

    def predict(self, batch: Batch) -> LogProbabilities:
        known, draws_NS = self.teacher.predict(batch), self._draws(batch)

        def log_probabilities(rows: slice) -> Tensor:
            log_p_NV = known(rows)
            sums_NV = log_p_NV.double().exp().cumsum(-1)
            # Rounding leaves the last sum near 1, and no draw may lie beyond it.
            at_NS = draws_NS[rows] * sums_NV[:, -1:]
            drawn_NS = torch.searchsorted(sums_NV, at_NS, right=True)
            ones_NS = torch.ones_like(drawn_NS, dtype=log_p_NV.dtype)
            counts_NV = torch.zeros_like(log_p_NV).scatter_add_(-1, drawn_NS, ones_NS)
            return (counts_NV / self.num_draws).log()

        return log_probabilities

    def _draws(self, batch: Batch) -> Tensor:
        """Returns numbers from 0 to below 1 for each target, [N, S]."""
        found = [np.empty((0, self.num_draws))]
        counts = batch.is_target_BT.sum(1).tolist()
        for tokens_T, count in zip(batch.inputs_BT.numpy(), counts, strict=True):
            random = np.random.default_rng([self.seed, *tokens_T])
            found.append(random.random((count, self.num_draws)))
        return torch.from_numpy(np.concatenate(found))
