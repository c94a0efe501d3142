"""Replica: one simulated machine, with the engine's scheduler and steps timed by the cost model."""

import math
from collections.abc import Callable

from paredown.engine.schedule.coasting import CoastingScheduler
from paredown.engine.schedule.counted_request import CountedRequest
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.step_plan import StepPlan
from paredown.plan.step_times import StepTimes
from paredown.spec.kept_pages import KeptPages

OnFinish = Callable[[CountedRequest], None]


class Replica:
    """Computes steps back to back while it has work, as the engine's thread does. Requests that
    arrive during a step are seen when the next one begins. Runs of equal steps are computed at
    once.

    `next_s` is when the current work ends, or infinity while idle.
    """

    def __init__(
        self,
        *,
        num_pages: int,
        max_positions: int,
        config: ScheduleConfig,
        times: StepTimes,
        on_finish: OnFinish,
        coasts: bool = True,
        kept: KeptPages | None = None,
    ) -> None:
        self.scheduler = CoastingScheduler(
            num_pages=num_pages,
            max_positions=max_positions,
            config=config,
            coasts=coasts,
            kept=kept,
        )
        self._times = times
        self._on_finish = on_finish
        self.next_s = math.inf
        self.busy_s = 0.0
        self.num_steps = self.num_step_tokens = 0
        self._plan: StepPlan | None = None
        # The current work: equal steps from `_start_s` on, each `_rise_s` longer than the one
        # before.
        self._start_s = self._first_s = self._rise_s = 0.0
        self._num_steps = 1

    def submit(self, request: CountedRequest, now_s: float) -> None:
        """Submits a request. Raises RequestError, CapacityError or QueueFullError, as the engine
        would."""
        self.scheduler.submit(request)
        if self._plan is None:
            self.next_s = now_s
        elif self._num_steps > 1:
            self._end_early(now_s)

    def wake(self) -> None:
        """Advances the machine. It must be called at `next_s`, which then moves on."""
        now_s = self.next_s
        if self._plan is not None:
            self._end(self._plan, now_s)
        scheduler = self.scheduler
        plan = scheduler.schedule()
        num_coasting = scheduler.num_coasting
        self._start_s, self._plan, self._num_steps = now_s, plan, 1
        if plan.chunks:
            self._first_s = self._times.step_s(
                plan.chunks, num_coasting, scheduler.coasting_context
            )
        elif num_coasting:
            self._first_s, self._rise_s, num_steps = self._times.decode_steps(
                num_coasting, scheduler.coasting_context
            )
            self._num_steps = min(num_steps, scheduler.num_equal_steps())
        else:
            self._plan, self.next_s = None, math.inf
            return
        self.next_s = now_s + self._seconds(self._num_steps)

    def _end(self, plan: StepPlan, now_s: float) -> None:
        """Ends a step as the engine does: all chunks are recorded first, then tokens are added in
        their order."""
        scheduler, num_steps = self.scheduler, self._num_steps
        self.busy_s += now_s - self._start_s
        self.num_steps += num_steps
        self.num_step_tokens += num_steps * scheduler.num_coasting
        for request, num_tokens in plan.chunks:
            self.num_step_tokens += num_tokens
            scheduler.advance(request, num_tokens)
        for request in scheduler.coast(num_steps):
            self._finish(request, now_s)
        for one, _ in plan.chunks:
            assert isinstance(one, CountedRequest)
            if one.num_computed_tokens < len(one.token_ids):
                continue
            one.add_tokens(1)
            if one.first_token_s is None:
                one.first_token_s = now_s
            if len(one.token_ids) >= one.max_total_tokens:
                self._finish(one, now_s)
        scheduler.start_coasting()

    def _finish(self, request: CountedRequest, now_s: float) -> None:
        self.scheduler.finish(request, "length")
        request.finish_s = now_s
        self._on_finish(request)

    def _end_early(self, now_s: float) -> None:
        """Shortens the run of equal steps so that it ends with the step in progress. The number of
        steps is the root of `_seconds`, corrected for rounding."""
        elapsed_s, rise_s = now_s - self._start_s, self._rise_s
        slope_s = self._first_s - rise_s / 2
        root_s = math.sqrt(max(slope_s * slope_s + 2 * rise_s * elapsed_s, 0.0))
        num_steps = max(math.ceil(2 * elapsed_s / (slope_s + root_s)), 1)
        while num_steps > 1 and self._start_s + self._seconds(num_steps - 1) >= now_s:
            num_steps -= 1
        while self._start_s + self._seconds(num_steps) < now_s:
            num_steps += 1
        if num_steps < self._num_steps:
            self._num_steps = num_steps
            self.next_s = self._start_s + self._seconds(num_steps)

    def _seconds(self, num_steps: int) -> float:
        return num_steps * (self._first_s + (num_steps - 1) * self._rise_s / 2)
