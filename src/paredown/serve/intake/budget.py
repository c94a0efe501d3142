"""Budget: a total that all requests of a server share."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from paredown.engine.schedule.scheduler import QueueFullError


class Hold:
    """One request's share of a budget, counted for its client."""

    def __init__(self, budget: "Budget", client: str = "") -> None:
        self._budget = budget
        self._client = client
        self._held = 0

    def add(self, num: int) -> None:
        """Raises QueueFullError where so much is not left, to all or to this client."""
        budget, of_client = self._budget, self._budget.held_by[self._client]
        for whose, held, most in (
            ("the requests under way", budget.num_held, budget.most),
            ("your requests under way", of_client, budget.most_of_client),
        ):
            if held + num > most:
                raise QueueFullError(
                    f"{whose} hold too many {budget.what}",
                    seen=f"{held} + {num} of {most}",
                    remedy="Send the request again later.",
                )
        self._note(num)

    def release(self) -> None:
        """Gives all of it back; once more does nothing."""
        self._note(-self._held)

    def _note(self, num: int) -> None:
        budget = self._budget
        self._held += num
        budget.num_held += num
        budget.held_by[self._client] += num
        if not budget.held_by[self._client]:
            del budget.held_by[self._client]


class Budget:
    """`most` of `what` for all together, and `most_of_client` for one client; without that one may
    hold all. Belongs to one event loop."""

    def __init__(self, most: int, what: str, most_of_client: int | None = None) -> None:
        self.most, self.what = most, what
        self.most_of_client = most if most_of_client is None else most_of_client
        self.num_held = 0
        self.held_by = Counter[str]()

    @contextmanager
    def hold(self, client: str = "") -> Iterator[Hold]:
        held = Hold(self, client)
        try:
            yield held
        finally:
            held.release()
