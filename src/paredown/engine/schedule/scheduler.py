"""Scheduler: chooses the tokens that the next step computes, and of which requests.

One rule covers prompts, generated tokens and drafts. A step has a budget of tokens. Running
requests, in the order in which they started, then waiting ones, in the policy's order, take as many
of their uncomputed tokens as are left. This cuts a long prompt into chunks; a decode is a chunk of
one token. No more requests run than a step has tokens. Each running one gets at least one token,
except wide requests beside others (wide.py).

A request that starts takes its cached prefix and allocates pages for all other tokens, then one
more whenever it reaches a new page. If every layer has a window, it frees the pages behind it as it
proceeds and holds only what window and step need. When no page is free, the running request of the
worst rank is preempted. It gives up its pages and returns to the queue with its generated tokens;
later it is computed again, except for what is still cached. Ranks never change, so the best running
request can always get pages, and each step advances it.

A request whose next page a running one is about to fill waits for that page. Several answers to one
prompt are one request until the prompt is computed; then the others, its followers, are forked.
"""

from collections.abc import Sequence

from paredown.engine.memory.request_pages import RequestPages
from paredown.engine.request import FinishReason, Request
from paredown.engine.schedule.followers import Followers
from paredown.engine.schedule.policies.fair_shares import FairShares
from paredown.engine.schedule.policies.table import POLICIES
from paredown.engine.schedule.repetition import Repetition
from paredown.engine.schedule.request_limits import RequestLimits, room_after_encoder
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.schedule.step_plan import Chunk, StepPlan
from paredown.engine.schedule.waiting_queue import WaitingQueue
from paredown.engine.schedule.wide import Lanes, WideRequests
from paredown.errors import CapacityError
from paredown.spec.kept_pages import KeptPages


class QueueFullError(CapacityError):
    """The waiting queue is full; the same request may be accepted later."""


class Scheduler:
    """Owns the queue, the running list and the pages. Every live request is in exactly one of the
    lists."""

    def __init__(
        self,
        *,
        num_pages: int,
        max_positions: int,
        config: ScheduleConfig,
        kept: KeptPages | None = None,
        switch_tokens: int | None = None,
        has_encoder: bool = False,
    ) -> None:
        """Texts beyond `switch_tokens` are computed anew (`ModelSpec.rotary_switch`). With
        `has_encoder`, prompts are read by an encoder, and have no prefixes in common."""
        self.config = config
        self._switch_tokens = switch_tokens
        kept = KeptPages() if kept is None else kept
        self._pages = pages = RequestPages(
            num_pages,
            prefix_cache=config.prefix_cache and not has_encoder,
            kept=kept,
            max_step_tokens=config.max_step_tokens,
        )
        self.pool, self.cache = pages.pool, pages.cache
        self.max_positions = max_positions
        self.limits = RequestLimits(
            max_positions=max_positions, num_pages=num_pages, kept=kept, has_encoder=has_encoder
        )
        self._kept, self._gives_pages_back = kept, kept.window is not None
        self._policy = policy = POLICIES[config.policy]
        lanes = Lanes(lambda: policy.make_queue(pages))
        self._wide = WideRequests(config.num_places, pages.pool, lanes)
        self.waiting: WaitingQueue = lanes
        self._shares: FairShares | None = None
        if config.fair_shares:
            self._wide = WideRequests(config.num_places, pages.pool, None)
            self.waiting = self._shares = FairShares(lambda: policy.make_queue(pages))
        self.running: list[Request] = []
        # Ended requests whose pages are kept for forks, as long as nobody else needs them.
        self.parked: list[Request] = []
        self._followers = Followers()
        self.num_preemptions = 0
        # The step tokens and places that are open to the requests in `running`.
        self._num_step_tokens, self._num_places = config.max_step_tokens, config.num_places
        # Free pages that were too few for the first waiting request; None if unknown.
        self._too_few_pages: int | None = None
        self._chunks: list[Chunk] = []
        self._may_repeat = not self._gives_pages_back and self._shares is None
        # The repetition of the plan, if all running requests decode.
        self._repetition: Repetition | None = None

    @property
    def num_waiting(self) -> int:
        """Counts requests in the queue and followers that wait for a prompt."""
        return len(self.waiting) + self._followers.num_following

    @property
    def num_unfinished(self) -> int:
        return self.num_waiting + len(self.running)

    @property
    def max_tokens_per_request(self) -> int:
        """Returns the most tokens of prompt and answer together (request_limits.py)."""
        return self.limits.max_tokens

    def num_known_pages(self, request: Request) -> int:
        """Returns how many pages of a request that has not arrived yet are already computed."""
        request.is_long = self._turns_as_long(request)
        return len(self._pages.find(request).pages)

    def check_room(self, num_requests: int) -> None:
        """Raises QueueFullError unless that many requests can be queued now."""
        if self.num_waiting + num_requests > self.config.max_waiting:
            raise QueueFullError(
                "too many requests are waiting",
                seen=f"{self.num_waiting} waiting of at most {self.config.max_waiting}",
                remedy="Send the request again later; a server takes more with --max-waiting.",
            )

    def submit(self, request: Request, *followers: Request) -> None:
        """Queues a request together with followers of the same prompt, for `fork_followers`. Raises
        what `check_prompt` raises, and QueueFullError, in which case none is queued."""
        self.limits.check_prompt(request.num_encoder_tokens or request.num_prompt_tokens)
        self.check_room(1 + len(followers))
        most = self.limits.max_total_tokens(request)
        for one in (request, *followers):
            one.max_total_tokens = min(one.max_total_tokens, most)
            one.rank = self._policy.rank(one)
        self._followers.add(request, followers)
        self._push(request)

    def fork_followers(self, request: Request) -> Sequence[Request]:
        """Forks the followers once their prompt is computed."""
        followers = self._followers.take(request)
        for one in followers:
            self.fork(request, one)
        return followers

    def fork(self, parent: Request, child: Request) -> None:
        """Adds a request that begins with the computed tokens of a running or parked one. They
        share pages, and whoever first writes into the last one takes a copy. The child must want
        more tokens before the next step. If no place is free, or the parent had to give up its
        pages, the child waits, even beyond `max_waiting`, since its parent was admitted."""
        num_computed = parent.num_computed_tokens
        assert num_computed <= child.num_tokens
        assert child.token_ids[:num_computed] == parent.token_ids[:num_computed]
        child.rank = parent.rank
        child.max_total_tokens = min(child.max_total_tokens, self.limits.max_total_tokens(child))
        child.is_long = self._turns_as_long(child)
        is_apart = not num_computed or not parent.pages or child.is_long != parent.is_long
        has_place = len(self.running) < self._num_places
        if is_apart or not has_place or (child.is_wide and self._wide.is_closed(self.running)):
            self._push(child)
            return
        self._pages.share(parent, child)
        self.running.append(child)
        self._repetition = None

    def drop(self, request: Request) -> None:
        """Frees an ended request from which nothing will be forked any more."""
        if request in self.parked:
            self.parked.remove(request)
            self._pages.release(request)
            self._too_few_pages = None

    def expect_drafts(self) -> None:
        """Says that running requests may have drafts: the next plan visits each of them."""
        self._repetition = None

    def schedule(self) -> StepPlan:
        """Returns the next step, without chunks only when nothing is left to do. The last plan must
        be computed; each request then has an uncomputed token or has ended."""
        if self._switch_tokens is not None:  # all tokens of who has grown long turn otherwise now
            for one in tuple(self.running):
                if one.is_long != self._turns_as_long(one):
                    self._preempt(one, StepPlan())
        if self._wide.must_look(self.running, has_pages=self._too_few_pages is None):
            self._repetition = None
        plan = None if self._repetition is None else self._repeat(self._repetition)
        if plan is None:
            plan = self._look_at_all()
            if self._may_repeat and plan.num_tokens == len(plan.chunks) == len(self.running):
                self._repetition = Repetition.of(self.running)
        self._chunks = plan.chunks
        return plan

    def _turns_as_long(self, request: Request) -> bool:
        return self._switch_tokens is not None and request.num_tokens > self._switch_tokens

    def _repeat(self, repetition: Repetition) -> StepPlan | None:
        """Returns the previous step's plan once more; None where pages are missing."""
        plan = StepPlan(self._chunks, is_repeated=True)
        for request in repetition.due():
            if not self._pages.grow(request, len(request.token_ids), plan.page_copies):
                self._repetition = None
                return None
        assert not plan.page_copies, "nobody has come to share the page of a token"
        if self.waiting:
            self._admit(plan, self._num_step_tokens - len(plan.chunks))
        return plan

    def _look_at_all(self) -> StepPlan:
        if self._gives_pages_back:
            for request in self.running:
                self._pages.drop_unseen(request)
        plan = StepPlan()
        budget, num_preemptions = self._num_step_tokens, self.num_preemptions
        has_pages = self._too_few_pages is None
        running = tuple(self._wide.taking_part(self.running, has_pages=has_pages))
        num_behind, is_short = len(running), False
        for request in running:
            num_behind -= 1
            num_certain = len(request.token_ids)
            if num_certain > request.num_covered_tokens:
                if not request.pages:  # preempted for one before it
                    continue
                is_covered = self._take_pages(request, plan)
                if self.num_preemptions != num_preemptions:
                    budget = self._num_step_tokens - plan.num_tokens
                if not is_covered:
                    is_short = True
                    continue
                num_certain = min(num_certain, request.num_covered_tokens)
            num_tokens = self._wide.fit(request, num_certain - request.num_computed_tokens)
            if not num_tokens:
                continue
            # Each request behind this one gets a token before this one gets a second, or a draft.
            if num_tokens > budget - num_behind:
                num_tokens = budget - num_behind
            if request.draft_token_ids:
                num_tokens += self._fit_drafts(request, budget - num_tokens - num_behind, plan)
            plan.chunks.append((request, num_tokens))
            budget -= num_tokens
        # The running requests still need the pages that are free now.
        if not is_short and self.num_preemptions == num_preemptions:
            self._admit(plan, budget)
        return plan

    def advance(self, request: Request, num_tokens: int) -> None:
        """Records that `num_tokens` more of `token_ids` are computed: those of a chunk without
        drafts, and the drafts that were then accepted."""
        request.num_computed_tokens += num_tokens
        assert request.num_computed_tokens <= len(request.token_ids)
        if self._shares is not None:
            is_first = request.num_computed_tokens == num_tokens
            self._shares.charge(request, num_tokens + is_first * request.num_encoder_tokens)

    def take_back(self, request: Request, num_tokens: int) -> None:
        """Records that the last `num_tokens` tokens of the current step were not computed."""
        request.num_computed_tokens -= num_tokens

    def finish(self, request: Request, reason: FinishReason) -> None:
        """Removes a live request and frees its pages. The first of its followers then computes
        their prompt."""
        assert request.finish_reason is None
        request.finish_reason = reason
        if request.leader is not None:
            self._followers.remove(request)
        elif request.pages:
            self.running.remove(request)
            self._repetition = None
            if request.keeps_pages and reason in ("stop", "length"):
                self._pages.park(request)
                self.parked.append(request)
            else:
                self._pages.release(request)
        else:
            self.waiting.remove(request)
        self._too_few_pages = None
        if request.followers:
            first, *others = self._followers.take(request)
            self._followers.add(first, others)
            self._push(first)

    def check_integrity(self) -> None:
        """Asserts the invariants: page counts are right, pages hold what the cache says, limits are
        kept, and no request is lost."""
        self._pages.check_integrity([*self.running, *self.parked])
        alive = [*self.running, *self.waiting]
        alive += self._followers.check_integrity(alive)
        assert len({request.id for request in alive}) == len(alive) == self.num_unfinished
        assert len(self.running) <= self.config.num_places
        for request in self.waiting:
            assert not request.pages
            assert not request.num_released_pages
            assert request.num_computed_tokens == request.num_sealed_pages == 0
        for request in alive:
            assert request.finish_reason is None
            assert request.num_computed_tokens < request.num_tokens
            assert request.num_wanted_tokens < request.max_total_tokens

    def _push(self, request: Request) -> None:
        request.is_long = self._turns_as_long(request)
        self.waiting.push(request)
        self._too_few_pages = None

    def _admit(self, plan: StepPlan, budget: int) -> None:
        self._wide.open_lanes(self.running)
        num_started = 0
        while self.waiting:
            has_place = len(self.running) < self._num_places
            # A step without tokens left gets one when a request gives up its place.
            if budget <= 0 and (has_place or not self._policy.preempts):
                return
            if self._too_few_pages is not None and self.pool.num_free <= self._too_few_pages:
                return
            request = self.waiting.first()
            # An encoder reads its tokens in one step; more than are left begin a step of theirs.
            if num_started and request.num_encoder_tokens >= budget:
                return
            prefix = None if self._must_wait(request) else self._pages.find(request)
            if prefix is None or self._pages.is_awaited(request, prefix):
                if self._wide.pass_over(request):
                    continue
                return
            if has_place and self._pages.start(request, prefix):
                self.waiting.remove(request)
                self.running.append(request)
                self._repetition = None
                num_started += 1
                budget = room_after_encoder(request, budget)
                num_ready = min(request.num_tokens, request.num_covered_tokens)
                num_tokens = min(num_ready - request.num_computed_tokens, budget)
                num_tokens = self._wide.fit(request, num_tokens)
                plan.chunks.append((request, num_tokens))
                plan.is_repeated = False
                budget -= num_tokens
            elif has_place and self.parked:
                self.drop(self.parked[-1])
            elif self._preempt_for(request, plan, has_place=has_place):
                budget = self._num_step_tokens - plan.num_tokens
            elif not self._wide.pass_over(request):
                self._too_few_pages = self.pool.num_free if has_place else None
                return

    def _must_wait(self, request: Request) -> bool:
        """Whether the places that are left are for others."""
        if request.is_wide and self._wide.is_closed(self.running):
            return True
        num_left = self._num_places - len(self.running)
        return self._followers.are_promised(request, self.running, num_left)

    def _take_pages(self, request: Request, plan: StepPlan) -> bool:
        """Makes a running request's pages cover its certain tokens, with its own copies where it
        writes; preempts requests of worse rank if needed. Returns False where there are none."""
        while not self._pages.grow(request, request.num_tokens, plan.page_copies):
            if self.parked:
                self.drop(self.parked[-1])
                continue
            victim = max(self.running, key=self._wide.order)
            if victim is request:
                return False
            self._preempt(victim, plan)
        return True

    def _fit_drafts(self, request: Request, room: int, plan: StepPlan) -> int:
        """Drops drafts from the last on until they fit the step and the free pages; returns how
        many are left. They take no page from any request, and followers begin without them."""
        num_certain = request.num_tokens
        if self._switch_tokens is not None and not request.is_long:
            room = min(room, self._switch_tokens - num_certain)
        drafts = () if request.followers else request.draft_token_ids[: max(room, 0)]
        self._pages.grow(request, num_certain + len(drafts), plan.page_copies)
        drafts = drafts[: max(request.num_covered_tokens - num_certain, 0)]
        request.draft_token_ids = drafts
        return len(drafts)

    def _preempt_for(self, request: Request, plan: StepPlan, *, has_place: bool) -> bool:
        """Preempts the running request of the worst rank for a waiting one of a better rank, where
        the policy says so or its answers are many, and enough pages would become free."""
        worse = self._wide.giving_way(request, self.running) if has_place else []
        if self._policy.preempts and self._shares is None:
            worse = [one for one in self.running if _rank(one) > _rank(request)]
        num_pages = self.pool.num_free
        num_pages += sum(len(one.pages) + len(one.cross_pages) for one in worse)
        if not worse or (has_place and num_pages < self._pages.num_wanted_pages(request)):
            return False
        self._preempt(max(worse, key=_rank), plan)
        return True

    def _preempt(self, request: Request, plan: StepPlan) -> None:
        """Returns a request to the queue and removes it from the step if it was already planned."""
        plan.chunks = [chunk for chunk in plan.chunks if chunk[0] is not request]
        plan.is_repeated = False
        self.running.remove(request)
        self._repetition = None
        self._pages.release(request)
        request.num_computed_tokens = 0
        request.draft_token_ids = ()
        request.num_preemptions += 1
        self.num_preemptions += 1
        self._push(request)


def _rank(request: Request) -> tuple[float, int]:
    return request.rank, request.id
