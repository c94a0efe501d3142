"""Times the four groups of linear layers of a transformer layer over its hidden size d.

Each group has a multiple of d^2 weights (qkv 3, out 1, ff1 and ff2 4 each, as in GPT-2). Its time
is therefore a quadratic in d: a constant for its start, a part for inputs and outputs, and a part
for weights. Coefficients are fitted as non-negative, so that each has this meaning. A model reads
each weight once per step, so copies take turns, which keeps the last call's weights out of the
caches.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from paredown.cost.least_squares import quadratic_fit
from paredown.errors import ConfigError
from paredown.evaluate.quality.quartile import lower_quartile
from paredown.evaluate.speed.random_model import random_linear
from paredown.formats.table import COSTED_FORMATS
from paredown.kernels import _core
from paredown.kernels.isa import chosen_isa
from paredown.progress import OnCount
from paredown.units import MEBI

# Rows and columns as multiples of d.
GROUPS: dict[str, tuple[int, int]] = {"qkv": (3, 1), "out": (1, 1), "ff1": (4, 1), "ff2": (1, 4)}
HIDDEN_SIZES = (512, 768, 1024, 1280, 1536, 1792, 2048, 2560)
# Total size of a weight's copies: equal at each size, so that all are read from the same memory
# level.
_COPIES_BYTES = 256 * MEBI
_LEAST_COPIES, _MOST_COPIES = 3, 512
# More than any step has; the widest input takes 0.7 GB.
MAX_TOKENS = 16_384


@dataclass(frozen=True, kw_only=True)
class GroupFit:
    """Seconds at each hidden size and the fit a + b d + c d^2; `mean_error` is relative."""

    group: str
    points: tuple[tuple[int, float], ...]
    coefficients: tuple[float, float, float]
    mean_error: float

    def seconds(self, hidden: float) -> float:
        a, b, c = self.coefficients
        return a + b * hidden + c * hidden**2


@dataclass(frozen=True, kw_only=True)
class HiddenSweep:
    format: str
    num_tokens: int
    num_threads: int
    fits: tuple[GroupFit, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def sweep_hidden(
    *,
    format_name: str = "bf16",
    num_tokens: int = 1,
    num_threads: int,
    hidden_sizes: Sequence[int] = HIDDEN_SIZES,
    num_rounds: int = 9,
    on_progress: OnCount | None = None,
) -> HiddenSweep:
    """Times each group at each size, in rounds. Raises ConfigError for an unknown format or an
    invalid number of tokens."""
    if format_name not in COSTED_FORMATS:
        raise ConfigError(
            "there is no such format",
            seen=format_name,
            remedy=f"Use one of {', '.join(COSTED_FORMATS)}.",
        )
    if not 1 <= num_tokens <= MAX_TOKENS or len(hidden_sizes) < 3:
        raise ConfigError(
            "a sweep needs some tokens, and three hidden sizes for a quadratic",
            seen=f"{num_tokens:,} tokens, {len(hidden_sizes)} sizes",
            remedy=f"Use 1 to {MAX_TOKENS:,} tokens, and three sizes or more.",
        )
    fits = []
    for number, (group, (rows, columns)) in enumerate(GROUPS.items()):
        points = []
        for hidden in hidden_sizes:
            shape = (rows * hidden, columns * hidden)
            seconds = _time_linear(format_name, shape, num_tokens, num_threads, num_rounds)
            points.append((hidden, seconds))
        fits.append(fit_group(group, points))
        if on_progress is not None:
            on_progress(number + 1, len(GROUPS))
    return HiddenSweep(
        format=format_name, num_tokens=num_tokens, num_threads=num_threads, fits=tuple(fits)
    )


def fit_group(group: str, points: Sequence[tuple[int, float]]) -> GroupFit:
    coefficients = quadratic_fit([(float(hidden), seconds) for hidden, seconds in points])
    fit = GroupFit(group=group, points=tuple(points), coefficients=coefficients, mean_error=0.0)
    errors = [abs(fit.seconds(hidden) / seconds - 1) for hidden, seconds in points]
    return GroupFit(
        group=group,
        points=fit.points,
        coefficients=coefficients,
        mean_error=sum(errors) / len(errors),
    )


def _time_linear(
    format_name: str, shape: tuple[int, int], num_tokens: int, num_threads: int, num_rounds: int
) -> float:
    first = _linear(format_name, shape, num_threads)
    num_copies = min(max(_LEAST_COPIES, _COPIES_BYTES // first.num_bytes), _MOST_COPIES)
    copies = [first] + [_linear(format_name, shape, num_threads) for _ in range(num_copies - 1)]
    x = np.random.default_rng(1).standard_normal((num_tokens, shape[1]), dtype=np.float32)
    y = np.empty((num_tokens, shape[0]), dtype=np.float32)
    rounds = []
    for _ in range(num_rounds + 1):
        started = time.perf_counter()
        for linear in copies:
            linear.run(x, y)
        rounds.append((time.perf_counter() - started) / num_copies)
    return lower_quartile(rounds[1:])


def _linear(format_name: str, shape: tuple[int, int], num_threads: int) -> _core.Linear:
    weight = random_linear(COSTED_FORMATS[format_name], *shape)
    return _core.Linear(chosen_isa(), num_threads, weight.fields())
