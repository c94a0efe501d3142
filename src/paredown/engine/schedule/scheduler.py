"""Scheduler: which tokens of which requests the next step computes.

One rule for prompts and generated tokens alike: a step has a budget of tokens; running requests,
oldest first, then waiting ones, first come first served, take from it as many of their uncomputed
tokens as are left. A long prompt is thereby cut into chunks, and a decode is a chunk of one.

Pages for all known tokens are taken when a request starts to run, one more whenever it grows into
a new page. When none is free the newest running request is preempted: it gives up its pages, goes
back to the head of the queue with its generated tokens and is computed again later. The oldest
request can always have every page, so each step moves it on and no request waits for ever.
"""

from collections import deque
from dataclasses import dataclass

from paredown.engine.memory.pages import PagePool
from paredown.engine.request import FinishReason, Request
from paredown.errors import CapacityError, ConfigError, RequestError
from paredown.spec.kv import PAGE_SIZE


class QueueFullError(CapacityError):
    """The waiting queue is full; the same request may be accepted later."""


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """`max_step_tokens`: tokens computed in one step. A waiting request is not running yet."""

    max_step_tokens: int = 512
    max_running: int = 64
    max_waiting: int = 256

    def __post_init__(self) -> None:
        for name in ("max_step_tokens", "max_running", "max_waiting"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(
                    f"{name} must be a positive integer", seen=value, remedy="Use 1 or more."
                )


@dataclass(slots=True)
class Chunk:
    """`num_tokens` tokens of `request` from its `num_computed_tokens` on, drafts included."""

    request: Request
    num_tokens: int


class Scheduler:
    """Owns the queue, the running list and the pages. Every live request is in exactly one."""

    def __init__(self, *, num_pages: int, max_positions: int, config: ScheduleConfig) -> None:
        self.config = config
        self.pool = PagePool(num_pages)
        self.max_positions = max_positions
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    @property
    def num_unfinished(self) -> int:
        return len(self.waiting) + len(self.running)

    @property
    def max_tokens_per_request(self) -> int:
        """Prompt and answer together: the context, or all the pages when these are fewer.

        The last token of a request is never computed and would need no page; it is not counted on.
        """
        return min(self.max_positions, self.pool.num_pages * PAGE_SIZE)

    def check_prompt(self, num_prompt_tokens: int) -> None:
        """Raises RequestError or CapacityError for a prompt that can never be answered."""
        if num_prompt_tokens < 1:
            raise RequestError(
                "the prompt is empty", seen="0 tokens", remedy="Give at least one token."
            )
        if num_prompt_tokens + 1 > self.max_positions:
            raise RequestError(
                "the prompt is longer than the context of the model allows",
                seen=f"{num_prompt_tokens} prompt tokens, a context of {self.max_positions}",
                remedy=f"Shorten the prompt to {self.max_positions - 1} tokens or fewer.",
            )
        if num_prompt_tokens + 1 > self.max_tokens_per_request:
            raise CapacityError(
                "the prompt does not fit in the key-value pages",
                seen=f"{num_prompt_tokens} prompt tokens + 1; {self.pool.num_pages} pages x "
                f"{PAGE_SIZE} tokens = {self.max_tokens_per_request}",
                remedy="Raise the number of pages, or shorten the prompt.",
            )

    def submit(self, request: Request) -> None:
        """Queues it. Raises what `check_prompt` raises, and QueueFullError."""
        self.check_prompt(request.num_prompt_tokens)
        if len(self.waiting) >= self.config.max_waiting:
            raise QueueFullError(
                "too many requests are waiting",
                seen=f"{len(self.waiting)} waiting of at most {self.config.max_waiting}",
                remedy="Send the request again later, or raise max_waiting.",
            )
        request.max_total_tokens = min(request.max_total_tokens, self.max_tokens_per_request)
        self.waiting.append(request)

    def schedule(self) -> list[Chunk]:
        """The chunks of the next step; empty only when nothing is left to do."""
        chunks: list[Chunk] = []
        budget, was_preempted = self.config.max_step_tokens, False
        running, index = self.running, 0
        while index < len(running) and budget:
            request = running[index]
            index += 1
            num_tokens = min(len(request.token_ids) - request.num_computed_tokens, budget)
            while not self._grow(request, len(request.token_ids)) and len(running) > index:
                self._preempt_newest()
                was_preempted = True
            if request.draft_token_ids:
                # Each request behind this one gets a token before this one gets a draft.
                num_tokens += self._fit_drafts(request, budget - num_tokens - len(running) + index)
            if len(request.pages) * PAGE_SIZE >= request.num_computed_tokens + num_tokens:
                chunks.append(Chunk(request, num_tokens))
                budget -= num_tokens
        # After a preemption the free pages are wanted by requests that already ran.
        if not was_preempted:
            self._admit(chunks, budget)
        return chunks

    def advance(self, request: Request, num_tokens: int) -> None:
        """Notes that `num_tokens` more of `token_ids` are computed: those of a chunk, drafts apart,
        and after them the drafts that were accepted and are certain now."""
        request.num_computed_tokens += num_tokens
        assert request.num_computed_tokens <= len(request.token_ids)

    def finish(self, request: Request, reason: FinishReason) -> None:
        """Takes a live request out and frees its pages."""
        assert request.finish_reason is None
        request.finish_reason = reason
        if request.pages:
            self.running.remove(request)
            self._release(request)
        else:
            self.waiting.remove(request)

    def check_integrity(self) -> None:
        """Asserts the invariants: pages have one owner, order is kept, nobody is lost."""
        self.pool.check_integrity()
        owned = [page for request in self.running for page in request.pages]
        assert len(set(owned)) == len(owned) == self.pool.num_pages - self.pool.num_free
        ids = [request.id for request in [*self.running, *self.waiting]]
        assert ids == sorted(set(ids)), "first come, first served"
        for request in self.waiting:
            assert not request.pages
            assert request.num_computed_tokens == 0
        for request in [*self.running, *self.waiting]:
            assert request.finish_reason is None
            assert request.num_computed_tokens < request.num_tokens
            assert request.num_wanted_tokens < request.max_total_tokens
        for request in self.running:
            assert request.num_computed_tokens <= len(request.pages) * PAGE_SIZE
        assert len(self.running) <= self.config.max_running

    def _grow(self, request: Request, num_tokens: int) -> bool:
        """Makes the pages of a request cover `num_tokens`; False when too few are free."""
        missing = -(-num_tokens // PAGE_SIZE) - len(request.pages)
        if missing <= 0:
            return True
        pages = self.pool.allocate(missing)
        if pages is None:
            return False
        request.pages += pages
        return True

    def _fit_drafts(self, request: Request, room: int) -> int:
        """Drops the drafts that have no room in the step or no free page, from the last on; returns
        how many are left. They take no page from anyone."""
        drafts, num_certain = request.draft_token_ids, len(request.token_ids)
        del drafts[max(room, 0) :]
        if not self._grow(request, num_certain + len(drafts)):
            del drafts[max(len(request.pages) * PAGE_SIZE - num_certain, 0) :]
        return len(drafts)

    def _preempt_newest(self) -> None:
        request = self.running.pop()
        self._release(request)
        request.num_computed_tokens = 0
        request.draft_token_ids.clear()
        request.num_preemptions += 1
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        self.pool.free(request.pages)
        request.pages = []

    def _admit(self, chunks: list[Chunk], budget: int) -> None:
        while self.waiting and budget and len(self.running) < self.config.max_running:
            request = self.waiting[0]
            if not self._grow(request, request.num_tokens):
                return
            self.running.append(self.waiting.popleft())
            num_tokens = min(request.num_tokens, budget)
            chunks.append(Chunk(request, num_tokens))
            budget -= num_tokens
