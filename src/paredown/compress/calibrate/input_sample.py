"""What a layer's linear layers read during calibration: per column, and a bounded sample of it.

Shapes: N sequences, T tokens, I columns.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.compress.calibrate.moments import inputs_not_finite
from paredown.compress.quantize.method import Block
from paredown.errors import ConfigError
from paredown.models.decoder.points import last_point

# Rows that are kept of one expert: what clipping looks at (compress/quantize/awq.py).
EXPERT_TOKENS = 512
# A sampled sequence gives its first tokens only: what causal attention says of them depends on
# nothing later, and more sequences are seen.
PREFIX_TOKENS = 256


@dataclass(frozen=True, kw_only=True)
class Observation:
    """`absmax_I` and `absmean_I` are over all calibration tokens; `sample_NTI` holds the first
    sequences, no more tokens than were asked for (but at least a sequence)."""

    absmax_I: Tensor
    absmean_I: Tensor
    sample_NTI: Tensor


def check_sample(num_tokens: int) -> None:
    """Raises ConfigError for a sample of nothing."""
    if num_tokens < 1:
        raise ConfigError(
            "num_tokens is too small to compare anything on", seen=num_tokens, remedy="Give more."
        )


class Sample:
    """The first tokens of the first sequences: `num_tokens`, but at least a sequence's."""

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self._kept: list[Tensor] = []

    def add(self, x_BTI: Tensor) -> bool:
        """Whether there is room for more."""
        length = min(x_BTI.shape[1], PREFIX_TOKENS, self._num_tokens)
        room = max(1, self._num_tokens // length) - sum(part.shape[0] for part in self._kept)
        if room > 0:
            self._kept.append(x_BTI[:room, :length].clone())
        return room > x_BTI.shape[0]

    def values(self) -> Tensor:
        """[N, T, I]"""
        return torch.cat(self._kept)


class RowSample:
    """The first `num_tokens` rows of one expert."""

    def __init__(self, num_tokens: int) -> None:
        self._room = num_tokens
        self._kept: list[Tensor] = []

    def add(self, x_NI: Tensor) -> bool:
        """Whether there is room for more."""
        self._kept.append(x_NI[: self._room].clone())
        self._room -= len(self._kept[-1])
        return self._room > 0

    def values(self) -> Tensor:
        """[1, N, I]"""
        return torch.cat(self._kept)[None]


class _Sums:
    def __init__(self, num_columns: int, like: Tensor, num_tokens: int) -> None:
        self.absmax_I = like.new_zeros(num_columns)
        self.abssum_I = like.new_zeros(num_columns)
        self.num_rows = 0
        is_rows = like.ndim == 2
        self.sample = RowSample(min(num_tokens, EXPERT_TOKENS)) if is_rows else Sample(num_tokens)

    def add(self, x_BTI: Tensor) -> None:
        rows = x_BTI.flatten(0, -2).abs()
        self.absmax_I = torch.maximum(self.absmax_I, rows.amax(0))
        self.abssum_I += rows.sum(0)
        self.num_rows += rows.shape[0]
        self.sample.add(x_BTI)

    def observation(self, point: str) -> Observation:
        if not bool(torch.isfinite(self.absmax_I).all()):
            channel = int(torch.isfinite(self.absmax_I).int().argmin())
            raise inputs_not_finite(f"{point}, channel {channel}")
        return Observation(
            absmax_I=self.absmax_I,
            absmean_I=self.abssum_I / self.num_rows,
            sample_NTI=self.sample.values(),
        )


def positions(block: Block, num_tokens: int) -> tuple[tuple[Tensor, Tensor] | None, Tensor]:
    """The rotation table and the mask of the first tokens."""
    table, mask_TT = block.table, block.mask[:num_tokens, :num_tokens]
    return (None if table is None else (table[0][:num_tokens], table[1][:num_tokens])), mask_TT


def sample_inputs(block: Block, num_tokens: int) -> Tensor:
    """[N, T, D], what enters the layer."""
    sample = Sample(num_tokens)
    for x_BTD in block.inputs():
        if not sample.add(x_BTD):
            break
    return sample.values()


@torch.no_grad()
def observe(block: Block, points: Iterable[str], num_tokens: int) -> dict[str, Observation]:
    """One pass of all calibration inputs; at every point the same `num_tokens` tokens are kept, at
    an expert's its first `EXPERT_TOKENS` at most. An expert that saw no token has no observation.
    Raises CheckpointError where they are not finite."""
    wanted = set(points)
    sums: dict[str, _Sums] = {}

    def tap(point: str, x: Tensor) -> Tensor:
        if point in wanted:
            if point not in sums:
                sums[point] = _Sums(x.shape[-1], x, num_tokens)
            sums[point].add(x)
        return x

    block.run(tap, stop_after=last_point(wanted))
    return {point: one.observation(point) for point, one in sums.items()}
