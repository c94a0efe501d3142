"""Wide requests: answers that were asked for together, and what they leave to others.

One request may ask for a hundred answers. They would take every place to run, and each step would
compute a hundred rows for whoever asked for one. So they hold three of four places at most. Beside
others they have no more rows of a step than those have, and at least MIN_ROWS; for some steps after
the last of these left they have SOON_ROWS, since who comes next must wait for the step under way.
Who began first goes on first, and the rest keep their pages and wait. Of their prompts such a step
computes PROMPT_TOKENS. One of four pages is left to others when they start, others start before one
that has to wait, and where pages run out they give theirs up first. Nobody starves: when others
have been away for SOON_STEPS, all rows are theirs, and a place of theirs goes by the policy.
"""

from collections.abc import Callable, Iterator

from paredown.engine.memory.pages import PagePool
from paredown.engine.request import Request
from paredown.engine.schedule.waiting_queue import WaitingQueue
from paredown.spec.kv import PAGE_SIZE

MIN_ROWS = 1
SOON_ROWS = 4
PROMPT_TOKENS = 64
SOON_STEPS = 256
# One place of so many is not theirs, nor is one page.
_PER_RESERVED = 4


class WideRequests:
    """Decides what wide requests may take. `lanes` is None with fair shares, which divide the
    places differently."""

    def __init__(self, num_places: int, pool: PagePool, lanes: "Lanes | None") -> None:
        self._num_places = num_places
        self._pool = pool
        self._num_wide_places = num_places - num_places // _PER_RESERVED
        self._lanes = lanes
        # Steps since other requests ran.
        self._num_steps_alone = SOON_STEPS
        # What the next step may still compute of their prompts; None for any number.
        self._num_prompt_tokens: int | None = None

    def is_closed(self, running: list[Request]) -> bool:
        """Whether no more of them may start. One may in any case where none runs."""
        if self._lanes is None or not (num_wide := _num_wide(running)):
            return False
        is_short = self._pool.num_free < self._pool.num_pages // _PER_RESERVED
        return is_short or num_wide >= self._num_wide_places or not self._has_prompt_room

    def open_lanes(self, running: list[Request]) -> None:
        """Must be called before the queue is asked for its first request."""
        if self._lanes is not None and self._lanes.wide:
            self._lanes.is_wide_closed = self.is_closed(running)

    def pass_over(self, request: Request) -> bool:
        """Whether others may start in place of this one, which has to wait."""
        lanes = self._lanes
        if lanes is None or not request.is_wide or lanes.is_wide_closed or not lanes.others:
            return False
        lanes.is_wide_closed = True
        return True

    def order(self, request: Request) -> tuple[bool, float, int]:
        """Returns a key for when pages run out: the request with the greatest gives its own up."""
        return self._lanes is not None and request.is_wide, request.rank, request.id

    def giving_way(self, request: Request, running: list[Request]) -> list[Request]:
        """Gives those whose pages this one may have, which waits for some."""
        if self._lanes is None or request.is_wide:
            return []
        return [one for one in running if one.is_wide]

    def fit(self, request: Request, num_tokens: int) -> int:
        """How many of its uncomputed tokens, which are so many, the step may compute."""
        if self._num_prompt_tokens is None or not request.is_wide or num_tokens <= 1:
            return num_tokens
        if not self._has_prompt_room:
            return 0
        num_tokens = min(num_tokens, self._num_prompt_tokens)
        self._num_prompt_tokens -= num_tokens
        return num_tokens

    @property
    def _has_prompt_room(self) -> bool:
        return self._num_prompt_tokens is None or self._num_prompt_tokens >= PAGE_SIZE

    def must_look(self, running: list[Request], *, has_pages: bool) -> bool:
        """Returns whether the next step must differ from the previous one because others will
        start."""
        return self._num_due(running, has_pages) > 0 and _num_wide(running) > 0

    def taking_part(self, running: list[Request], *, has_pages: bool) -> list[Request]:
        """The running that the next step computes, of prompts as much as `fit` says.
        `has_pages`: whether those who wait are not known to lack them."""
        num_wide = _num_wide(running)
        num_others = len(running) - num_wide + self._num_due(running, has_pages)
        self._num_steps_alone = 0 if num_others else self._num_steps_alone + 1
        are_alone = self._num_steps_alone > SOON_STEPS
        self._num_prompt_tokens = None if are_alone or self._lanes is None else PROMPT_TOKENS
        if not num_wide or are_alone:
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
