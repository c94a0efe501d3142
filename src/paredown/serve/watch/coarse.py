"""Shows numbers and histograms in steps, so that nobody can see what one request added to them."""

import secrets
from collections.abc import Callable


class CoarseNumber:
    """Shows `value` rounded down to a multiple of `step`, updated once it has moved far enough.

    That distance, one to two steps, is drawn anew each time. A client that adds d to the value sees
    it move with probability d / `step`, even if nothing else changes and the client chose the
    starting point. The number shown is off by less than two steps.
    """

    def __init__(self, step: int, draw: Callable[[int], int] = secrets.randbelow) -> None:
        self._step = max(step, 1)
        self._draw = draw
        self._turn(0)

    def show(self, value: float) -> float:
        if not self._low < value < self._high:
            self._turn(value)
        return self._shown

    def _turn(self, value: float) -> None:
        self._shown = value - value % self._step
        self._low = self._shown - 1 - self._draw(self._step)
        self._high = self._shown + self._step + 1 + self._draw(self._step)


class CoarseHistogram:
    """Shows a histogram as it was when its count had last moved by one to two steps, drawn anew
    each time."""

    def __init__(self, step: int, draw: Callable[[int], int] = secrets.randbelow) -> None:
        self._step = max(step, 1)
        self._draw = draw
        self._shown: tuple[list[int], float] | None = None
        self._next = self._step + 1 + draw(self._step)

    def show(self, counts: list[int], sum_: float) -> tuple[list[int], float]:
        """Returns `counts`, which are cumulative, and the sum, or those of an earlier moment."""
        if self._shown is None:
            self._shown = [0] * len(counts), 0.0
        if counts[-1] >= self._next:
            self._shown = counts, sum_
            self._next = counts[-1] + self._step + 1 + self._draw(self._step)
        return self._shown


class CoarseNumbers:
    """Coarse numbers and histograms, by name."""

    def __init__(self) -> None:
        self._numbers: dict[str, CoarseNumber] = {}
        self._histograms: dict[str, CoarseHistogram] = {}

    def show(self, name: str, value: float, step: int) -> float:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = CoarseNumber(step)
        return number.show(value)

    def show_histogram(
        self, name: str, counts: list[int], sum_: float, step: int
    ) -> tuple[list[int], float]:
        histogram = self._histograms.get(name)
        if histogram is None:
            histogram = self._histograms[name] = CoarseHistogram(step)
        return histogram.show(counts, sum_)
