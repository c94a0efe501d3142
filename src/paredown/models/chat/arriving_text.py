"""ArrivingText: a text that comes in pieces, read from its front.

What needs more text than there is yields, and goes on when more has come. Every decision depends on
the characters alone, never on where the text was cut into pieces.
"""

import re
from collections.abc import Generator

# A generator that yields where it needs more text.
Reading = Generator[None, None, None]
Asking = Generator[None, None, bool]
_WHITESPACE = re.compile(r"\s*")


class ArrivingText:
    """The text that came and is still of use. `at` is where reading goes on in `text`; since what
    is of no use is dropped, a place to come back to is a `position`."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.is_whole = False
        self._num_dropped = 0
        self._held_from: int | None = None

    def add(self, piece: str) -> None:
        self.text += piece

    @property
    def position(self) -> int:
        """Returns how many characters came before `at`."""
        return self._num_dropped + self.at

    def go_back(self, position: int) -> None:
        """Reads again from `position`, which must be held."""
        self.at = position - self._num_dropped
        assert self.at >= 0

    def hold(self) -> None:
        """Keeps what is read from here on, until the next `hold` or `release`."""
        self._held_from = self.position

    @property
    def held(self) -> str:
        """Returns what was read since `hold`."""
        if self._held_from is None:
            return ""
        return self.text[self._held_from - self._num_dropped : self.at]

    def release(self) -> None:
        self._held_from = None

    def drop_read(self) -> None:
        """Forgets what was read, but for what is held."""
        num = self.at if self._held_from is None else self._held_from - self._num_dropped
        self.text, self.at = self.text[num:], self.at - num
        self._num_dropped += num

    @property
    def is_ended(self) -> bool:
        """Returns whether all was read and no more will come."""
        return self.is_whole and self.at == len(self.text)

    def peek(self) -> Generator[None, None, str]:
        """Returns the next character without reading it; "" at the end."""
        while self.at == len(self.text) and not self.is_whole:
            yield
        return self.text[self.at : self.at + 1]

    def stands(self, marker: str) -> Asking:
        """Returns whether `marker` is next; it is not read."""
        while True:
            if self.text.startswith(marker, self.at):
                return True
            if self.is_whole or not marker.startswith(self.text[self.at :]):
                return False
            yield

    def take(self, marker: str) -> Asking:
        """Reads `marker` if it is next, and returns whether it was."""
        is_next = yield from self.stands(marker)
        if is_next:
            self.at += len(marker)
        return is_next

    def skip_whitespace(self) -> Reading:
        while True:
            found = _WHITESPACE.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
            if self.is_whole or self.at < len(self.text):
                return
            yield

    def take_lines(self, lines: tuple[str, ...]) -> Asking:
        """Reads `lines` one after the other, with any whitespace before each, and returns whether
        all were there. Where one is missing nothing was read; call it while text is held."""
        start = self.position
        for line in lines:
            yield from self.skip_whitespace()
            if not (yield from self.take(line)):
                self.go_back(start)
                return False
        return True
