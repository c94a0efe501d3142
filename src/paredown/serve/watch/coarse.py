"""CoarseNumber: shows a number in steps, so that nobody can see what one request added to it."""

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


class CoarseNumbers:
    """Coarse numbers, by name."""

    def __init__(self) -> None:
        self._numbers: dict[str, CoarseNumber] = {}

    def show(self, name: str, value: float, step: int) -> float:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = CoarseNumber(step)
        return number.show(value)
