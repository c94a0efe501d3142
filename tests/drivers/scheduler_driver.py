"""A small engine over the scheduler and the toy model. It compares every row of logits with those
of the sequence alone, and checks that no shared page is written."""

import numpy as np

from fakes.specs import context_of
from fakes.toy_executor import ToyExecutor, reference_logits, toy_spec
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import Scheduler
from paredown.engine.schedule.service import Service
from paredown.engine.schedule.step_plan import StepPlan
from paredown.executors.protocol import SequenceSlice
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec

VOCAB_SIZE = 64
MAX_POSITIONS = 96
SPEC = toy_spec(vocab_size=VOCAB_SIZE, max_positions=MAX_POSITIONS)


class SchedulerDriver:
    """Runs requests. The next token is the most likely one, shifted by the request's own number."""

    def __init__(
        self, *, num_pages: int, config: ScheduleConfig, spec: ModelSpec | Context = SPEC
    ) -> None:
        context = context_of(spec)
        self.executor = ToyExecutor(num_pages=num_pages, spec=spec)
        self.scheduler = Scheduler(
            num_pages=num_pages,
            max_positions=context.max_request_tokens,
            config=config,
            kept=KeptPages.of(context),
        )
        self.alive: dict[int, Request] = {}
        self.num_made = 0
        self.now_s = 0.0
        self.finished: list[Request] = []
        self.num_repeated = 0

    def make(self, token_ids: list[int], max_tokens: int, service: Service) -> Request:
        self.num_made += 1
        return Request(
            id=self.num_made,
            params=SamplingParams(),
            num_prompt_tokens=len(token_ids),
            token_ids=list(token_ids),
            max_total_tokens=len(token_ids) + max_tokens,
            service=service,
            arrival_s=self.now_s,
        )

    def submit(
        self,
        token_ids: list[int],
        max_tokens: int = 4,
        service: Service | None = None,
        num_followers: int = 0,
    ) -> Request:
        service = Service() if service is None else service
        requests = [self.make(token_ids, max_tokens, service) for _ in range(1 + num_followers)]
        self.scheduler.submit(*requests)
        self.alive |= {one.id: one for one in requests}
        return requests[0]

    def fork(self, parent: Request, token_id: int) -> Request:
        token_ids = [*parent.token_ids[: parent.num_computed_tokens], token_id]
        num_left = self.scheduler.max_tokens_per_request - len(token_ids)
        child = self.make(token_ids, min(num_left, 9), parent.service)
        self.scheduler.fork(parent, child)
        self.alive[child.id] = child
        return child

    def cancel(self, request: Request) -> None:
        self.scheduler.finish(request, "cancelled")
        del self.alive[request.id]

    def step(self) -> list[Request]:
        """Returns the requests that were computed."""
        plan = self.scheduler.schedule()
        assert plan.chunks or not self.alive
        assert plan.num_tokens <= self.scheduler.config.max_step_tokens
        if plan.is_repeated:
            self._check_repeated(plan)
        self.executor.copy_pages(plan.page_copies)
        slices = []
        for one, num_tokens in plan.chunks:
            start = one.num_computed_tokens
            wanted = [*one.token_ids, *one.draft_token_ids]
            end = start + num_tokens
            self._check_pages_are_its_own(one, start, end)
            num_logits = 1 + len(one.draft_token_ids) if end == len(wanted) else 0
            slices.append(
                SequenceSlice(
                    token_ids=wanted[start:end],
                    start=start,
                    pages=one.pages,
                    num_logits=num_logits,
                    num_released_pages=one.num_released_pages,
                )
            )
        logits = iter(self.executor.step(slices))
        for (one, num_tokens), part in zip(plan.chunks, slices, strict=True):
            self._take(one, num_tokens, [next(logits) for _ in range(part.num_logits)])
        assert next(logits, None) is None
        return [one for one, _ in plan.chunks]

    def _check_repeated(self, plan: StepPlan) -> None:
        """Compares a repeated plan with one that visits each request."""
        self.num_repeated += 1
        assert [one for one, _ in plan.chunks] == self.scheduler.running
        for one, num_tokens in plan.chunks:
            assert num_tokens == 1 == len(one.token_ids) - one.num_computed_tokens
            assert not one.draft_token_ids
            assert one.num_covered_tokens >= len(one.token_ids)

    def _take(self, one: Request, num_tokens: int, rows: list[np.ndarray]) -> None:
        drafts, one.draft_token_ids = list(one.draft_token_ids), ()
        self.scheduler.advance(one, num_tokens - len(drafts))
        if rows:
            for follower in self.scheduler.fork_followers(one):
                self._take(follower, 0, rows)
        for row in rows:
            assert np.array_equal(row, self.expected(one.token_ids))
            token_id = int(np.argmax(row) + one.id) % VOCAB_SIZE
            one.token_ids.append(token_id)
            if len(one.token_ids) >= one.max_total_tokens:
                self.scheduler.finish(one, "length")
                self.finished.append(self.alive.pop(one.id))
                return
            if not drafts or drafts.pop(0) != token_id:
                break
            self.scheduler.advance(one, 1)

    def expected(self, token_ids: list[int]) -> np.ndarray:
        return reference_logits(token_ids, VOCAB_SIZE, self.executor.context)

    def _check_pages_are_its_own(self, one: Request, start: int, end: int) -> None:
        gone = one.num_released_pages
        for page in one.pages[start // PAGE_SIZE - gone : -(-end // PAGE_SIZE) - gone]:
            assert not self.scheduler.pool.is_shared(page)

    def run_to_end(self, max_steps: int = 5000) -> None:
        for _ in range(max_steps):
            if not self.alive:
                return
            self.step()
            self.scheduler.check_integrity()
        raise AssertionError("it does not come to an end")
