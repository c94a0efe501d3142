"""CoastingScheduler: the scheduler for simulations, which counts decoding requests instead of
visiting them.

A decoding request takes one token per step and a page every 16th step. It coasts: it leaves
`running`, and its tokens and pages are taken in sums, over many steps at once if nothing else
happens in them. Requests that begin, end or want more go through `Scheduler`. When pages run short,
all requests land: they return to `running` in their former order, with the tokens and pages that
they would have had.

Step order, free pages and evictions equal those of the plain scheduler
(tests/plan/test_replica.py). Which free pages a request holds may differ. The cache learns of a
request's own pages only when it lands, before it frees one.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

from paredown.engine.schedule.counted_request import CountedRequest
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import Scheduler
from paredown.engine.schedule.step_plan import StepPlan
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE


@dataclass(slots=True)
class _Coast:
    """`start` is the number of its first step. It takes a page in the steps whose number is
    `crossing` modulo the page size."""

    request: CountedRequest
    start: int
    crossing: int


class CoastingScheduler(Scheduler):
    """For `CountedRequest`s. After a step, call `advance` for the plan's chunks, then `coast`, then
    `start_coasting`.

    `num_coasting` requests get a token in each step in addition to the plan. In the next step they
    attend to `coasting_context` tokens, themselves included. With `coasts` False no request coasts.
    """

    def __init__(
        self,
        *,
        num_pages: int,
        max_positions: int,
        config: ScheduleConfig,
        coasts: bool = True,
        kept: KeptPages | None = None,
    ) -> None:
        super().__init__(num_pages=num_pages, max_positions=max_positions, config=config, kept=kept)
        assert not config.fair_shares, "shares are of tokens as they come"
        assert not coasts or kept is None or kept.window is None, "a window gives pages back"
        self._may_coast = coasts
        self._may_repeat = False  # coasting requests are not visited either
        self._coasting: dict[int, _Coast] = {}  # in the order of `running`
        # (step after which it has all its tokens, its place in that order, id).
        self._ends: list[tuple[int, int, int]] = []
        self._crossings = [0] * PAGE_SIZE
        self._taken: list[int] = []
        self._num_steps = self._num_started = 0
        self.num_coasting = self.coasting_context = 0

    @property
    def num_unfinished(self) -> int:
        return len(self.waiting) + len(self.running) + self.num_coasting

    def schedule(self) -> StepPlan:
        """Returns the next step. Coasting requests are computed too but are not in the plan."""
        if self.num_coasting and not self._coast_on():
            self._land_all()
        return super().schedule()

    def num_equal_steps(self) -> int:
        """After a plan without chunks, returns how many steps are equal to this one, itself
        included, if no request arrives. At least one."""
        if not self.num_coasting:
            return 1
        num_steps = self._ends[0][0] - self._num_steps
        num_free = self.pool.num_free
        if self._num_pages_in(1, num_steps) > num_free:
            num_steps = next(
                n for n in range(1, num_steps) if self._num_pages_in(1, n + 1) > num_free
            )
        return num_steps

    def coast(self, num_steps: int) -> list[CountedRequest]:
        """Records that `num_steps` equal steps were computed. Returns the requests that have all
        their tokens; they are back in `running`, to be finished."""
        if not self.num_coasting:
            return []
        if num_steps > 1:
            self._take(self._num_pages_in(1, num_steps))
        self._num_steps += num_steps
        self.coasting_context += num_steps * self.num_coasting
        done = []
        while self._ends and self._ends[0][0] == self._num_steps:
            done.append(self._land(heappop(self._ends)[2]))
        return done

    def start_coasting(self) -> None:
        """Makes the leading decoding requests of `running` coast from now on."""
        if not self._may_coast:
            return
        num_started = 0
        for request in self.running:
            num_tokens = len(request.token_ids)
            # The last token of a prompt looks like a decode, but its page exists and its token does
            # not.
            if (
                request.num_computed_tokens != num_tokens - 1
                or num_tokens == request.num_prompt_tokens
                or len(request.pages) != -(-(num_tokens - 1) // PAGE_SIZE)
            ):
                break
            assert isinstance(request, CountedRequest)
            num_started += 1
            crossing = (self._num_steps + 1 - num_tokens) % PAGE_SIZE
            self._coasting[request.id] = _Coast(request, self._num_steps, crossing)
            self._crossings[crossing] += 1
            end = self._num_steps + request.max_total_tokens - num_tokens
            heappush(self._ends, (end, self._num_started + num_started, request.id))
            self.coasting_context += num_tokens
        del self.running[:num_started]
        self._num_started += num_started
        self._add_coasting(num_started)

    def check_integrity(self) -> None:
        """Lands all coasting requests, then checks."""
        self._land_all()
        super().check_integrity()
        left = [*self._taken, *self._ends, self.num_coasting, self.coasting_context]
        assert not any((*left, *self._crossings))

    def _coast_on(self) -> bool:
        """Takes the pages for the next step. Returns False where a request must, or might have to,
        be preempted for them."""
        num_pages = self._crossings[self._num_steps % PAGE_SIZE]
        # The others need at most a page each, and the first of them come before the waiting ones.
        if num_pages + len(self.running) > self.pool.num_free:
            return False
        if self._policy.preempts and self.waiting:
            return False
        self._take(num_pages)
        return True

    def _num_pages_in(self, first: int, last: int) -> int:
        """Returns how many pages the steps from `first` up to `last` take from now on."""
        rounds, rest = divmod(last - first, PAGE_SIZE)
        num_pages = rounds * self.num_coasting
        start = self._num_steps + first
        for step in range(start, start + rest):
            num_pages += self._crossings[step % PAGE_SIZE]
        return num_pages

    def _take(self, num_pages: int) -> None:
        if num_pages:
            pages = self.pool.allocate(num_pages)
            assert pages is not None
            self._taken += pages

    def _land(self, request_id: int) -> CountedRequest:
        """Returns the request to `running`, as if it had been visited in each step."""
        one = self._coasting.pop(request_id)
        request, num_steps = one.request, self._num_steps - one.start
        request.add_tokens(num_steps)
        num_tokens = request.num_tokens
        num_pages = -(-(num_tokens - 1) // PAGE_SIZE) - len(request.pages)
        if num_pages:
            request.pages.extend(self._taken[-num_pages:])
            request.num_covered_tokens += num_pages * PAGE_SIZE
            del self._taken[-num_pages:]
        self._crossings[one.crossing] -= 1
        self.coasting_context -= num_tokens
        self._add_coasting(-1)
        self.running.append(request)
        self.advance(request, num_steps)
        return request

    def _land_all(self) -> None:
        visited, self.running = self.running, []
        for request_id in tuple(self._coasting):
            self._land(request_id)
        self.running += visited
        self._ends.clear()

    def _add_coasting(self, num_requests: int) -> None:
        self.num_coasting += num_requests
        self._num_step_tokens -= num_requests
        self._num_places -= num_requests
