"""The inputs of a layer's linear layers during calibration: statistics per column, and a bounded
sample.

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

# The number of rows kept of one expert, used for clipping (compress/quantize/awq.py).
EXPERT_TOKENS = 512
# Only the first tokens of a sampled sequence are kept: causal attention makes them independent of
# later ones, and so more sequences are seen.
PREFIX_TOKENS = 256


@dataclass(frozen=True, kw_only=True)
class Observation:
    """`absmax_I` and `absmean_I` cover all calibration tokens. `sample_NTI` has the first
    sequences, with no more tokens than asked for, but at least one sequence."""

    absmax_I: Tensor
    absmean_I: Tensor
    sample_NTI: Tensor


def check_sample(num_tokens: int) -> None:
    """Raises ConfigError for an empty sample."""
    if num_tokens < 1:
        raise ConfigError(
            "num_tokens is too small to compare anything on", seen=num_tokens, remedy="Give more."
        )


class Sample:
    """Keeps the first tokens of the first sequences: `num_tokens`, but at least one sequence's."""

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self._kept: list[Tensor] = []

    def add(self, x_BTI: Tensor) -> bool:
        """Adds inputs and returns whether there is room for more."""
        length = min(x_BTI.shape[1], PREFIX_TOKENS, self._num_tokens)
        room = max(1, self._num_tokens // length) - sum(part.shape[0] for part in self._kept)
        if room > 0:
            self._kept.append(x_BTI[:room, :length].clone())
        return room > x_BTI.shape[0]

    def values(self) -> Tensor:
        """Returns the sample [N, T, I]."""
        return torch.cat(self._kept)


class RowSample:
    """Keeps the first `num_tokens` rows of one expert."""

    def __init__(self, num_tokens: int) -> None:
        self._room = num_tokens
        self._kept: list[Tensor] = []

    def add(self, x_NI: Tensor) -> bool:
        """Adds rows and returns whether there is room for more."""
        self._kept.append(x_NI[: self._room].clone())
        self._room -= len(self._kept[-1])
        return self._room > 0

    def values(self) -> Tensor:
        """Returns the sample [1, N, I]."""
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
    """Returns the rotation table and the mask of the first tokens."""
    table, mask_TT = block.table, block.mask[:num_tokens, :num_tokens]
    return (None if table is None else (table[0][:num_tokens], table[1][:num_tokens])), mask_TT


def sample_inputs(block: Block, num_tokens: int) -> Tensor:
    """Returns the layer's inputs [N, T, D]."""
    sample = Sample(num_tokens)
    for x_BTD in block.inputs():
        if not sample.add(x_BTD):
            break
    return sample.values()


def sample_encoded(block: Block, num_sequences: int) -> Tensor | None:
    """Returns the vectors [N, S, D] that cross-attention reads beside the first sequences, which
    each of their tokens sees whole; None for a layer without it."""
    kept = list[Tensor]()
    for encoded_BSD in block.encoded():
        if encoded_BSD is None:
            return None
        kept.append(encoded_BSD[: num_sequences - sum(map(len, kept))])
        if sum(map(len, kept)) == num_sequences:
            break
    return torch.cat(kept)


@torch.no_grad()
def observe(block: Block, points: Iterable[str], num_tokens: int) -> dict[str, Observation]:
    """Passes all calibration inputs through the layer once. Every point keeps the same
    `num_tokens` tokens, an expert's point at most its first `EXPERT_TOKENS`. An expert that saw no
    token has no observation. Raises CheckpointError for inputs that are not finite."""
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
