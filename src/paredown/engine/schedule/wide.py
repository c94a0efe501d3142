"""Wide requests: limits on answers that were requested together, in favour of others.

One request may ask for a hundred answers. They would take every place, and each step would compute
a hundred rows while others wait for one. So they hold at most three of four places. Beside others,
they get no more rows of a step than the others have, but at least MIN_ROWS. For some steps after
the last of the others left they get SOON_ROWS, because a new request must wait for the current
step. The oldest go first; the rest keep their pages and wait. None starves: once others have been
away for SOON_STEPS, they get all rows, and places follow the policy.
"""

from collections.abc import Callable, Iterator

from paredown.engine.request import Request
from paredown.engine.schedule.waiting_queue import WaitingQueue

MIN_ROWS = 2
SOON_ROWS = 8
SOON_STEPS = 256
# One place of this many is reserved for others.
_PLACES_PER_RESERVED = 4


class WideRequests:
    """Decides what wide requests may take. `lanes` is None with fair shares, which divide the
    places differently."""

    def __init__(self, num_places: int, lanes: "Lanes | None") -> None:
        self._num_places = num_places
        self._num_wide_places = num_places - num_places // _PLACES_PER_RESERVED
        self._lanes = lanes
        # Steps since other requests ran.
        self._num_steps_alone = SOON_STEPS

    def is_closed(self, running: list[Request]) -> bool:
        """Returns whether no more wide requests may start."""
        return self._lanes is not None and _num_wide(running) >= self._num_wide_places

    def open_lanes(self, running: list[Request]) -> None:
        """Must be called before the queue is asked for its first request."""
        if self._lanes is not None and self._lanes.wide:
            self._lanes.is_wide_closed = self.is_closed(running)

    def must_look(self, running: list[Request], *, has_pages: bool) -> bool:
        """Returns whether the next step must differ from the previous one because others will
        start."""
        return self._num_due(running, has_pages) > 0 and _num_wide(running) > 0

    def taking_part(self, running: list[Request], *, has_pages: bool) -> list[Request]:
        """Returns the running requests that the next step computes. Prompts are always computed.
        `has_pages` is False if the waiting requests are known to lack pages."""
        num_wide = _num_wide(running)
        num_others = len(running) - num_wide + self._num_due(running, has_pages)
        self._num_steps_alone = 0 if num_others else self._num_steps_alone + 1
        if not num_wide or self._num_steps_alone > SOON_STEPS:
            return running
        room, found = max(num_others, MIN_ROWS if num_others else SOON_ROWS), []
        for one in running:
            if one.is_wide and one.num_computed_tokens >= one.num_prompt_tokens:
                room -= 1
                if room < 0:
                    one.draft_token_ids = ()
                    continue
            found.append(one)
        return found

    def _num_due(self, running: list[Request], has_pages: bool) -> int:
        """Returns how many other requests start in the next step."""
        if self._lanes is None or not has_pages:
            return 0
        return min(len(self._lanes.others), self._num_places - len(running))


def _num_wide(running: list[Request]) -> int:
    return sum(one.is_wide for one in running)


class Lanes:
    """Implements WaitingQueue over two queues: when no place is left for wide requests, others go
    on."""

    def __init__(self, make_queue: Callable[[], WaitingQueue]) -> None:
        self.others, self.wide = make_queue(), make_queue()
        self.is_wide_closed = False

    def __len__(self) -> int:
        return len(self.others) + len(self.wide)

    def __iter__(self) -> Iterator[Request]:
        yield from self.others
        yield from self.wide

    def push(self, request: Request) -> None:
        (self.wide if request.is_wide else self.others).push(request)

    def first(self) -> Request:
        if not self.wide or (self.is_wide_closed and self.others):
            return self.others.first()
        if not self.others:
            return self.wide.first()
        first, wide = self.others.first(), self.wide.first()
        return first if (first.rank, first.id) < (wide.rank, wide.id) else wide

    def remove(self, request: Request) -> None:
        (self.wide if request.is_wide else self.others).remove(request)
