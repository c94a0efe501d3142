"""Request: one sequence that is being answered, and how far it has come.

There is no phase. A request has tokens computed and tokens wanted; while the first are fewer the
scheduler gives it steps, and when they meet a new token is sampled, which moves the second. Wanted
are the tokens that are certain (`token_ids`) and those that somebody proposes to follow them
(`draft_token_ids`), which are computed beside them and then accepted or dropped.
"""

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paredown.engine.memory.packed_pages import PackedPages, packed
from paredown.engine.memory.prefix_cache import PageContents
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.service import Service
from paredown.spec.kv import PAGE_SIZE

FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """Times are `time.monotonic()` seconds. `token_ids` is the prompt and what was generated.

    `draft_token_ids` may be set between two steps (`Scheduler.expect_drafts`); the scheduler drops
    from their end what a step has no room for, and after a step none are left. Computed tokens are
    always certain ones.
    """

    id: int
    params: SamplingParams
    num_prompt_tokens: int
    token_ids: list[int]
    draft_token_ids: Sequence[int] = ()
    # The request ends with "length" when `token_ids` has grown to this.
    max_total_tokens: int
    seed: int = 0
    service: Service = field(default_factory=Service)
    # The policy's: smaller ones go first, equal ones by id.
    rank: float = 0.0
    num_computed_tokens: int = 0
    # In order, less those behind the attention sinks' that no later token sees. As the core reads
    # them: a step of many requests joins tables, and makes no number of each page.
    pages: "array[int]" = field(default_factory=lambda: array("i"))
    num_released_pages: int = 0
    # Tokens that have, or had, a place in a page which the request may write.
    num_covered_tokens: int = 0
    # Leading pages that are full of computed tokens, and the prefix cache's node of the last one.
    num_sealed_pages: int = 0
    sealed_node: int | None = None
    # Tokens that needed no computing when the request first started.
    num_cached_tokens: int = 0
    # Others that ask for the same prompt and go on from it when it is computed, each of whom has
    # this one as its `leader`.
    followers: "Sequence[Request]" = field(default=(), repr=False)
    leader: "Request | None" = field(default=None, repr=False)
    # Whether its pages stay its own when it has ended, for others to go on from.
    keeps_pages: bool = False
    # Whether the log-probabilities of its prompt, where they were asked for, are known.
    is_scored: bool = False
    finish_reason: FinishReason | None = None
    num_preemptions: int = 0
    arrival_s: float = 0.0
    first_step_s: float | None = None
    first_token_s: float | None = None
    finish_s: float | None = None
    # Made while its numbers are at hand: later each of them comes from somewhere in memory.
    _packed_prompt: bytes = field(init=False, repr=False)
    # Whether its text turns as long ones do, in models for which that matters.
    is_long: bool = False
    # What the first page will hold; None where the prompt does not fill one.
    first_page: Hashable = field(init=False, repr=False)
    # Whether it was asked for together with others.
    is_wide: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._packed_prompt = packed(self.token_ids)
        self.is_wide = self.service.num_together > 1
        has_page = self.num_prompt_tokens >= PAGE_SIZE
        self.first_page = self.contents(0, 1)[0] if has_page else None

    @property
    def salt(self) -> str:
        """The prefix its pages are found under: those of long texts hold other keys, and begin
        with a word that no other salt begins with."""
        return f"long {self.service.salt}" if self.is_long else self.service.salt

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_wanted_tokens(self) -> int:
        return len(self.token_ids) + len(self.draft_token_ids)

    @property
    def num_generated_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def needs_every_row(self) -> bool:
        """Whether all its tokens must be computed, for the logits that score them."""
        return self.params.prompt_logprobs is not None and not self.is_scored

    def contents(self, start: int, end: int) -> PageContents:
        """What the pages from `start` up to `end` hold once they are full."""
        num_prompt_tokens = self.num_prompt_tokens
        if end * PAGE_SIZE <= num_prompt_tokens:
            return PackedPages(self._packed_prompt, start)
        if start * PAGE_SIZE < num_prompt_tokens:
            generated = packed(self.token_ids[num_prompt_tokens : end * PAGE_SIZE])
            return PackedPages(self._packed_prompt + generated, start)
        return PackedPages(packed(self.token_ids[start * PAGE_SIZE : end * PAGE_SIZE]))
