"""Request: one sequence that is being answered, and its progress.

There are no phases. A request has computed tokens and wanted tokens. While the former are fewer,
the scheduler gives it steps; when they are equal, a new token is sampled, which is wanted next.
Wanted tokens are the certain ones (`token_ids`) and proposed drafts after them (`draft_token_ids`),
which are computed alongside and then accepted or dropped.
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
    """Times are `time.monotonic()` seconds. `token_ids` holds the prompt and the generated tokens.
    In an encoder-decoder the prompt is `encoder_token_ids`, and `token_ids` begins with the token
    that starts the decoder.

    `draft_token_ids` may be set between two steps (`Scheduler.expect_drafts`). The scheduler drops
    from their end what a step has no room for; after a step none are left. Computed tokens are
    always certain.
    """

    id: int
    params: SamplingParams
    num_prompt_tokens: int
    token_ids: list[int]
    draft_token_ids: Sequence[int] = ()
    # The request ends with "length" when `token_ids` reaches this length.
    max_total_tokens: int
    encoder_token_ids: Sequence[int] = ()
    seed: int = 0
    service: Service = field(default_factory=Service)
    # Set by the policy: the smallest goes first, ties go by id.
    rank: float = 0.0
    num_computed_tokens: int = 0
    # In order, without pages behind the attention sinks' that no later token sees. An array,
    # because the core reads it directly and a step only joins arrays.
    pages: "array[int]" = field(default_factory=lambda: array("i"))
    num_released_pages: int = 0
    # Those of the encoder's tokens, written by the request's first step.
    cross_pages: "array[int]" = field(default_factory=lambda: array("i"))
    # Tokens with a place, now or earlier, in pages that the request may write.
    num_covered_tokens: int = 0
    # Leading pages that are full of computed tokens, and the prefix cache's node of the last.
    num_sealed_pages: int = 0
    sealed_node: int | None = None
    # Tokens that came from the cache when the request first started.
    num_cached_tokens: int = 0
    # Requests for the same prompt that continue from this one once it is computed; each has this
    # one as its `leader`.
    followers: "Sequence[Request]" = field(default=(), repr=False)
    leader: "Request | None" = field(default=None, repr=False)
    # Whether its pages stay reserved after it ends, so that others can be forked from it.
    keeps_pages: bool = False
    # Whether the log-probabilities of its prompt are known, if they were requested.
    is_scored: bool = False
    finish_reason: FinishReason | None = None
    # Draft tokens that were computed for it, and those of them that came true.
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    num_preemptions: int = 0
    arrival_s: float = 0.0
    first_step_s: float | None = None
    first_token_s: float | None = None
    finish_s: float | None = None
    # Packed while the numbers are in the processor's caches; later each would cost a memory access.
    _packed_prompt: bytes = field(init=False, repr=False)
    # Whether its text counts as long, in models that rotate long texts differently.
    is_long: bool = False
    # The content of its first page; None where the prompt does not fill one.
    first_page: Hashable = field(init=False, repr=False)
    # Whether it was requested together with others.
    is_wide: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._packed_prompt = packed(self.token_ids)
        self.is_wide = self.service.num_together > 1
        has_page = self.num_prompt_tokens >= PAGE_SIZE
        self.first_page = self.contents(0, 1)[0] if has_page else None

    @property
    def salt(self) -> str:
        """The prefix under which its pages are found. Long texts have other keys, so their salt
        begins with a word that no other salt begins with."""
        return f"long {self.service.salt}" if self.is_long else self.service.salt

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_encoder_tokens(self) -> int:
        return len(self.encoder_token_ids)

    @property
    def num_cross_pages(self) -> int:
        """The number of pages that the encoder's tokens take."""
        return -(-len(self.encoder_token_ids) // PAGE_SIZE)

    @property
    def num_wanted_tokens(self) -> int:
        return len(self.token_ids) + len(self.draft_token_ids)

    @property
    def num_generated_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def needs_every_row(self) -> bool:
        """Whether all its tokens must be computed, because their logits score them."""
        return self.params.prompt_logprobs is not None and not self.is_scored

    def contents(self, start: int, end: int) -> PageContents:
        """Returns the content of pages `start` up to `end`, once they are full."""
        num_prompt_tokens = self.num_prompt_tokens
        if end * PAGE_SIZE <= num_prompt_tokens:
            return PackedPages(self._packed_prompt, start)
        if start * PAGE_SIZE < num_prompt_tokens:
            generated = packed(self.token_ids[num_prompt_tokens : end * PAGE_SIZE])
            return PackedPages(self._packed_prompt + generated, start)
        return PackedPages(packed(self.token_ids[start * PAGE_SIZE : end * PAGE_SIZE]))
