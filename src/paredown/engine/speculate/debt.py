"""Debt: what drafting has cost more than it gave, and how long it is to be left alone for that.

A step without draft tokens gives n tokens in T(n). One with draft tokens, a of which came true,
gives n + a in the time t, which n + a tokens would have taken (1 + a / n) T(n) without. The
difference is a loss or a gain. Losses add up; gains make up for losses, but none is kept for later.
A debt of a few steps may be chance, one beyond is due: then nothing is drafted until it is paid off
by `SHARE` of the time that goes by. So drafting in vain takes no more than about that share of the
time, whatever it is that was not foreseen.

T(n) was measured before; a neighbour that came to the machine since makes every step with draft
tokens look dear. So a few steps without draft tokens tell what T(n) is after, and what was owed is
reckoned with the middle of both.
"""

import statistics

SHARE = 0.01
# In steps without draft tokens, of one request and of many: chance evens out among many.
_LIMIT_STEPS = 4.0
_LIMIT_STEPS_ALONE = 8.0


# So many steps without draft tokens tell what one takes now.
_NUM_AFTER = 4
# T(n) differs from one measurement to the next; a machine is slower from here on.
_SLOWER = 1.25


class Debt:
    """In seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_due = False
        self._limit_s = 0.0
        # Since T(n) was last measured: T(n) then, and how many times it was set against a step.
        self._before_s = 0.0
        self._num_before = 0.0
        self._after_s: list[float] = []

    def owe(self, seconds: float, plain_s: float, num_plain_tokens: int, num_accepted: int) -> None:
        """A step with draft tokens took `seconds`; without them it would have taken `plain_s` and
        given `num_accepted` tokens fewer."""
        num_steps = 1 + num_accepted / num_plain_tokens
        self.seconds = max(self.seconds + seconds - plain_s * num_steps, 0.0)
        if plain_s != self._before_s:
            self._before_s, self._num_before = plain_s, 0.0
        self._num_before += num_steps
        self._after_s.clear()
        self._limit_s = plain_s * (_LIMIT_STEPS + _LIMIT_STEPS_ALONE / num_plain_tokens**0.5)
        self.is_due = self.is_due or self.seconds > self._limit_s

    def pay(self, seconds: float, drafting_s: float, *, is_settled: bool = True) -> None:
        """A step without draft tokens took `seconds`, after they were looked for in vain for
        `drafting_s`. Without `is_settled` it tells nothing of those after it."""
        self.seconds += drafting_s
        self.pay_for(seconds)
        if not is_settled:
            return
        self._after_s.append(seconds)
        if len(self._after_s) == _NUM_AFTER and self._num_before:
            self._reckon_anew(statistics.median(self._after_s))

    def pay_for(self, seconds: float) -> None:
        """So many seconds went by in steps without draft tokens."""
        self.seconds = max(self.seconds - SHARE * seconds, 0.0)
        self.is_due = self.is_due and self.seconds > 0

    @property
    def is_reckoned(self) -> bool:
        """Whether enough steps without draft tokens were seen since there were draft tokens."""
        return not self._num_before

    def _reckon_anew(self, after_s: float) -> None:
        if after_s > _SLOWER * self._before_s:
            rise_s = after_s - self._before_s
            self.seconds = max(self.seconds - self._num_before * rise_s / 2, 0.0)
            self.is_due = self.is_due and self.seconds > self._limit_s / 2
        self._num_before = 0.0
