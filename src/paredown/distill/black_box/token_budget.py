"""TokenBudget: tokens that a teacher may be asked for, reserved before each question."""

from paredown.errors import ConfigError


class TokenBudget:
    """`limit` None has no end. What is spent and what is reserved never exceed the limit together,
    as long as no question costs more than was reserved for it. If one does, later ones reserve as
    much more."""

    def __init__(self, limit: int | None, spent: int = 0) -> None:
        if limit is not None and limit < 1:
            raise ConfigError(
                "the budget has no tokens", seen=limit, remedy="Give --max-tokens-total 1 or more."
            )
        self._limit = limit
        self._surplus = 0
        self.spent = spent
        self.reserved = 0

    def reserve(self, num_tokens: int) -> int | None:
        """Returns the tokens that are reserved for a question of at most `num_tokens`, to be given
        to `settle`; None where they are not there."""
        wanted = num_tokens + self._surplus
        if self._limit is not None and self.spent + self.reserved + wanted > self._limit:
            return None
        self.reserved += wanted
        return wanted

    def settle(self, reserved: int, used: int) -> None:
        """Ends a reservation of which `used` tokens were spent."""
        self.reserved -= reserved
        self.spent += used
        self._surplus += max(0, used - reserved)
