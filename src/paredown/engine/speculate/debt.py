"""Debt: what guessing has cost more than it gave, and how long it is to be left alone for that.

A step without guesses gives n tokens in T(n). One with guesses, a of which came true, gives n + a
in the time t, which n + a tokens would have taken (1 + a / n) T(n) without. The difference is a
loss or a gain. Losses add up; gains make up for losses, but none is kept for later. A debt of a few
steps may be chance, one beyond is due: then nothing is guessed until it is paid off by `SHARE` of
the time that goes by. So guessing in vain takes no more than about that share of the time, whatever
it is that was not foreseen.
"""

SHARE = 0.01
# In steps without guesses, of one request and of many: chance evens out among many.
_LIMIT_STEPS = 4.0
_LIMIT_STEPS_ALONE = 8.0


class Debt:
    """In seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_due = False

    def guess(
        self, seconds: float, plain_s: float, num_plain_tokens: int, num_accepted: int
    ) -> None:
        """A step with guesses took `seconds`; without them it would have taken `plain_s` and given
        `num_accepted` tokens fewer."""
        self.seconds += seconds - plain_s * (1 + num_accepted / num_plain_tokens)
        self.seconds = max(self.seconds, 0.0)
        limit = _LIMIT_STEPS + _LIMIT_STEPS_ALONE / num_plain_tokens**0.5
        self.is_due = self.is_due or self.seconds > limit * plain_s

    def pay(self, seconds: float, proposal_s: float) -> None:
        """A step without guesses took `seconds`, after they were looked for in vain for
        `proposal_s`."""
        self.seconds = max(self.seconds + proposal_s - SHARE * seconds, 0.0)
        self.is_due = self.is_due and self.seconds > 0
