"""CoastingScheduler: the scheduler, with requests that decode counted instead of visited.

A request that decodes takes one token of each step and a page in every 16th. It coasts: it leaves
`running`, and what it takes is taken in sums, those of many steps at once where nothing else
happens in them. Requests that begin, end or want more go through the code of `Scheduler`,
and when pages run short so do all: they land in `running`, in the order in which they
were there, with the tokens and pages that they would have had.

The order of steps, the pages that are free and what the prefix cache forgets are those of the plain
scheduler (tests/plan/test_replica.py). Which of the free pages a request holds is not, and the
cache learns of a request's own pages when it lands: before it gives one back.
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
    """`start`: the number of its first step. It takes a page in steps of number `crossing`, modulo
    the tokens of a page."""

    request: CountedRequest
    start: int
    crossing: int


class CoastingScheduler(Scheduler):
    """For `CountedRequest`s. After a step: `advance` for what the plan holds, then `coast`, then
    `start_coasting`.

    `num_coasting` requests get a token in each step beside those in the plan; in the next they
    attend to `coasting_context` tokens, themselves included. Without `coasts` none ever do.
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
        self._may_repeat = False  # those that coast are not looked at either
        self._coasting: dict[int, _Coast] = {}  # in the order of `running`
        # (step after which it has all its tokens, place in that order, id)
        self._ends: list[tuple[int, int, int]] = []
        self._crossings = [0] * PAGE_SIZE
        self._taken: list[int] = []
        self._num_steps = self._num_started = 0
        self.num_coasting = self.coasting_context = 0

    @property
    def num_unfinished(self) -> int:
        return len(self.waiting) + len(self.running) + self.num_coasting

    def schedule(self) -> StepPlan:
        """The next step. Those that coast are not in the plan, and are computed beside it."""
        if self.num_coasting and not self._coast_on():
            self._land_all()
        return super().schedule()

    def num_equal_steps(self) -> int:
        """After a plan without chunks: how many steps like this one follow, it included, if no
        request comes. At least one."""
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
        """Notes that a step was computed, or so many equal ones. Returns those that have all their
        tokens; they are in `running` now, to be finished."""
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
        """The first of `running` that decode coast from now on."""
        if not self._may_coast:
            return
        num_started = 0
        for request in self.running:
            num_tokens = len(request.token_ids)
            # The last of a prompt looks like a decode, but its page is there and no token yet.
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
        """Lands all that coast."""
        self._land_all()
        super().check_integrity()
        left = [*self._taken, *self._ends, self.num_coasting, self.coasting_context]
        assert not any((*left, *self._crossings))

    def _coast_on(self) -> bool:
        """Takes the pages that the next step needs. False where some must be preempted for them, or
        may be."""
        num_pages = self._crossings[self._num_steps % PAGE_SIZE]
        # No more than a page for each of the others, the first of which ask before those who wait.
        if num_pages + len(self.running) > self.pool.num_free:
            return False
        if self._policy.preempts and self.waiting:
            return False
        self._take(num_pages)
        return True

    def _num_pages_in(self, first: int, last: int) -> int:
        """Pages that are taken in the steps of these numbers, `last` not included, from now on."""
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
        """It goes on in `running`, as one that was visited in each step."""
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
