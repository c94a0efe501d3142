"""Wide requests: answers that were asked for together, and what they leave to others.

One request may ask for a hundred answers. They would take every place to run, and each step would
compute a hundred rows for whoever asked for one. So they hold three of four places at most. While
others run, they have no more rows of a step than those, and at least MIN_ROWS; who began first goes
on first, and the rest keep their pages and wait. Nobody starves: among themselves they have it all,
and a place that is theirs goes by the policy.
"""

from collections.abc import Callable, Iterator

from paredown.engine.request import Request
from paredown.engine.schedule.waiting_queue import WaitingQueue

MIN_ROWS = 2
# One place of so many is not theirs.
_PLACES_PER_RESERVED = 4


def num_wide_places(num_places: int) -> int:
    return num_places - num_places // _PLACES_PER_RESERVED


def num_wide(running: list[Request]) -> int:
    return sum(one.is_wide for one in running)


def taking_part(running: list[Request]) -> list[Request]:
    """Those of the running that the next step computes. Prompts are computed in any case."""
    num_others = len(running) - num_wide(running)
    if num_others in (0, len(running)):
        return running
    room, found = max(num_others, MIN_ROWS), []
    for one in running:
        if one.is_wide and one.num_computed_tokens >= one.num_prompt_tokens:
            room -= 1
            if room < 0:
                one.draft_token_ids = ()
                continue
        found.append(one)
    return found


class Lanes:
    """Implements WaitingQueue over two: when no place is left for wide requests, others go on."""

    def __init__(self, make_queue: Callable[[], WaitingQueue]) -> None:
        self._others, self.wide = make_queue(), make_queue()
        self.is_wide_closed = False

    def __len__(self) -> int:
        return len(self._others) + len(self.wide)

    def __iter__(self) -> Iterator[Request]:
        yield from self._others
        yield from self.wide

    def push(self, request: Request) -> None:
        (self.wide if request.is_wide else self._others).push(request)

    def first(self) -> Request:
        if not len(self.wide) or (self.is_wide_closed and len(self._others)):
            return self._others.first()
        if not len(self._others):
            return self.wide.first()
        first, wide = self._others.first(), self.wide.first()
        return first if (first.rank, first.id) < (wide.rank, wide.id) else wide

    def remove(self, request: Request) -> None:
        (self.wide if request.is_wide else self._others).remove(request)
