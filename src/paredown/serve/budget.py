"""Budget: a total that all requests of a server share."""

from collections.abc import Iterator
from contextlib import contextmanager

from paredown.engine.schedule.scheduler import QueueFullError


class Hold:
    """One request's share of a budget."""

    def __init__(self, budget: "Budget") -> None:
        self._budget = budget
        self._held = 0

    def add(self, num: int) -> None:
        """Raises QueueFullError where so much is not left."""
        budget = self._budget
        if budget.num_held + num > budget.most:
            raise QueueFullError(
                f"the requests under way hold too many {budget.what}",
                seen=f"{budget.num_held} + {num} of {budget.most}",
                remedy="Send the request again later.",
            )
        budget.num_held += num
        self._held += num

    def release(self) -> None:
        """Gives all of it back; once more does nothing."""
        self._budget.num_held -= self._held
        self._held = 0


class Budget:
    """`most` of `what` for all together. Belongs to one event loop."""

    def __init__(self, most: int, what: str) -> None:
        self.most, self.what = most, what
        self.num_held = 0

    @contextmanager
    def hold(self) -> Iterator[Hold]:
        held = Hold(self)
        try:
            yield held
        finally:
            held.release()
