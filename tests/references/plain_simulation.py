"""The slow, obvious simulation: the plain scheduler, requests with real tokens, one step after
another. And step costs whose sums are exact in floating point, so that times can be compared."""

from dataclasses import dataclass

from paredown.cost.step_cost import StepLoad, chunk_pairs
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.scheduler import QueueFullError, Scheduler
from paredown.engine.schedule.service import Service
from paredown.errors import CapacityError, RequestError
from paredown.plan.workload import SimulatedRequest
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True)
class LinearCost:
    """Powers of two by default: sums of a few thousand steps have no rounding."""

    step: float = 2**-8
    token: float = 2**-14
    kv_token: float = 2**-20
    pair: float = 2**-21
    first_token: float = 2**-12

    def step_s(self, step: StepLoad) -> float:
        return (
            self.step
            + self.token * step.num_tokens
            + self.kv_token * step.kv_tokens_read
            + self.pair * step.attention_pairs
            + self.first_token * step.num_first_tokens
        )


def real_request(arrival: SimulatedRequest, number: int, service: Service) -> Request:
    """Tokens that are the same in pages of the same content and nowhere else."""
    contents = [10 * one for one in arrival.page_contents for _ in range(PAGE_SIZE)]
    num_own = arrival.num_prompt_tokens - len(contents)
    return Request(
        id=number,
        params=SamplingParams(),
        num_prompt_tokens=arrival.num_prompt_tokens,
        token_ids=contents + [10 * number + 1] * num_own,
        max_total_tokens=arrival.num_prompt_tokens + arrival.num_output_tokens,
        arrival_s=arrival.time_s,
        service=service,
    )


class PlainSimulation:
    """One machine. `requests` are all that were accepted."""

    def __init__(
        self, *, num_pages: int, max_positions: int, config: ScheduleConfig, cost: LinearCost
    ) -> None:
        self.scheduler = Scheduler(num_pages=num_pages, max_positions=max_positions, config=config)
        self.cost = cost
        self.requests: list[Request] = []
        self.finished: list[Request] = []
        self.num_refused = 0
        self.num_steps = 0
        self.busy_s = 0.0

    def run(self, arrivals: list[SimulatedRequest], services: list[Service]) -> None:
        coming = [
            real_request(one, number, service)
            for number, (one, service) in enumerate(zip(arrivals, services, strict=True))
        ]
        now_s = 0.0
        while coming or self.scheduler.num_unfinished:
            if not self.scheduler.num_unfinished:
                now_s = max(now_s, coming[0].arrival_s)
            while coming and coming[0].arrival_s <= now_s:
                self._submit(coming.pop(0))
            if self.scheduler.num_unfinished:
                now_s = self._step(now_s)

    def _submit(self, request: Request) -> None:
        try:
            self.scheduler.submit(request)
        except (QueueFullError, RequestError, CapacityError):
            self.num_refused += 1
        else:
            self.requests.append(request)

    def _step(self, now_s: float) -> float:
        plan = self.scheduler.schedule()
        assert plan.chunks
        starts = [request.num_computed_tokens for request, _ in plan.chunks]
        sizes = [num_tokens for _, num_tokens in plan.chunks]
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
        load = StepLoad(
            num_tokens=sum(sizes),
            num_logits=sum(
                end == request.num_tokens
                for end, (request, _) in zip(ends, plan.chunks, strict=True)
            ),
            num_requests=len(sizes),
            attention_pairs=sum(map(chunk_pairs, starts, sizes)),
            kv_tokens_read=sum(ends),
            num_first_tokens=sum(
                end == request.num_tokens == request.num_prompt_tokens
                for end, (request, _) in zip(ends, plan.chunks, strict=True)
            ),
        )
        seconds = self.cost.step_s(load)
        self.num_steps += 1
        self.busy_s += seconds
        now_s += seconds
        for request, num_tokens in plan.chunks:
            self.scheduler.advance(request, num_tokens)
        for request, _ in plan.chunks:
            self._extend(request, now_s)
        return now_s

    def _extend(self, request: Request, now_s: float) -> None:
        if request.num_computed_tokens < request.num_tokens:
            return
        request.token_ids.append(10 * request.id + 2)
        if request.first_token_s is None:
            request.first_token_s = now_s
        if request.num_tokens >= request.max_total_tokens:
            self.scheduler.finish(request, "length")
            request.finish_s = now_s
            self.finished.append(request)


def idle_chains(scheduler: Scheduler) -> list[int]:
    """How many pages stand before each idle page in its chain, the next to be evicted first: pages
    have other numbers in another run, and their places in chains have not."""
    pages = scheduler._pages
    return [len(pages.chain(page)) for page in pages.pool.idle_pages()]
