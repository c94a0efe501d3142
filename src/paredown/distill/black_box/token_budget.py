"""TokenBudget: tokens that a teacher may be asked for, reserved before each question."""

from paredown.errors import ConfigError


class TokenBudget:
    """`limit` None has no end. What is spent and what is reserved never exceed the limit together,
    as long as no question costs more than was reserved for it. If one costs more than its bound,
    later ones reserve as much more: `surplus` is the most by which one did."""

    def __init__(self, limit: int | None, spent: int = 0, surplus: int = 0) -> None:
        if limit is not None and limit < 1:
            raise ConfigError(
                "the budget has no tokens", seen=limit, remedy="Give --max-tokens-total 1 or more."
            )
        self._limit = limit
        self._surplus = surplus
        self.spent = spent
        self.reserved = 0

    def reserve(self, bound: int) -> int | None:
        """Returns the tokens that are reserved for a question of about `bound` at most, to be given
        to `settle`; None where they are not there."""
        wanted = bound + self._surplus
        if self._limit is not None and self.spent + self.reserved + wanted > self._limit:
            return None
        self.reserved += wanted
        return wanted

    def settle(self, bound: int, reserved: int, used: int) -> None:
        """Ends the reservation of a question of that bound, which has cost `used` tokens."""
        self.reserved -= reserved
        self.spent += used
        self._surplus = max(self._surplus, used - bound)
