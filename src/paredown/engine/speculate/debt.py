"""Debt: the net loss of drafting, and how long drafting must pause to make up for it.

A step without draft tokens yields n tokens in T(n). A step with draft tokens, a of them accepted,
yields n + a tokens in time t. Without drafts, n + a tokens would have taken (1 + a / n) T(n). The
difference is a loss or a gain. Losses add up; gains offset losses but are not saved. A debt of a
few steps may be chance. Beyond that it is due: drafting stops until `SHARE` of the elapsed time has
paid it off. Fruitless drafting thus costs about that share of the time at most, whatever the cause.

T(n) was measured earlier. If another program has slowed the machine since, every step with draft
tokens looks expensive. So a few steps without draft tokens measure T(n) again, and the debt is
recomputed with the mean of both.
"""

import statistics

SHARE = 0.01
# In steps without draft tokens, for one request and for many; chance evens out among many.
_LIMIT_STEPS = 4.0
_LIMIT_STEPS_ALONE = 8.0


# Number of steps without draft tokens that measure the current T(n).
_NUM_AFTER = 4
# T(n) varies between measurements; beyond this factor the machine has become slower.
_SLOWER = 1.25


class Debt:
    """Tracks the debt in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_due = False
        self._limit_s = 0.0
        # Since T(n) was last measured: its value then, and how many steps it was compared with.
        self._before_s = 0.0
        self._num_before = 0.0
        self._after_s: list[float] = []

    def owe(self, seconds: float, plain_s: float, num_plain_tokens: int, num_accepted: int) -> None:
        """Records that a step with draft tokens took `seconds`. Without them it would have taken
        `plain_s` and yielded `num_accepted` fewer tokens."""
        num_steps = 1 + num_accepted / num_plain_tokens
        self.seconds = max(self.seconds + seconds - plain_s * num_steps, 0.0)
        if plain_s != self._before_s:
            self._before_s, self._num_before = plain_s, 0.0
        self._num_before += num_steps
        self._after_s.clear()
        self._limit_s = plain_s * (_LIMIT_STEPS + _LIMIT_STEPS_ALONE / num_plain_tokens**0.5)
        self.is_due = self.is_due or self.seconds > self._limit_s

    def pay(self, seconds: float, drafting_s: float, *, is_settled: bool = True) -> None:
        """Records a step of `seconds` without draft tokens, after a fruitless search of
        `drafting_s`. With `is_settled` False the step is not typical of later ones."""
        self.seconds += drafting_s
        self.pay_for(seconds)
        if not is_settled:
            return
        self._after_s.append(seconds)
        if len(self._after_s) == _NUM_AFTER and self._num_before:
            self._reckon_anew(statistics.median(self._after_s))

    def pay_for(self, seconds: float) -> None:
        """Records that `seconds` went by in steps without draft tokens."""
        self.seconds = max(self.seconds - SHARE * seconds, 0.0)
        self.is_due = self.is_due and self.seconds > 0

    @property
    def is_reckoned(self) -> bool:
        """Returns whether enough steps without draft tokens followed the last draft."""
        return not self._num_before

    def _reckon_anew(self, after_s: float) -> None:
        if after_s > _SLOWER * self._before_s:
            rise_s = after_s - self._before_s
            self.seconds = max(self.seconds - self._num_before * rise_s / 2, 0.0)
            self.is_due = self.is_due and self.seconds > self._limit_s / 2
        self._num_before = 0.0
