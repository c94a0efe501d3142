"""RequestLimits: how many tokens a prompt and its answer may have."""

from dataclasses import dataclass

from paredown.engine.request import Request
from paredown.engine.schedule.admission import check_encoder_prompt, check_prompt
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """With `has_encoder`, an encoder reads the prompt, whose pages are not those of the answer."""

    max_positions: int
    num_pages: int
    kept: KeptPages
    has_encoder: bool = False

    @property
    def max_tokens(self) -> int:
        """Returns the most tokens of prompt and answer together: the context, or all the pages if
        that is less, for requests that keep all pages or whose window exceeds them. The last token
        is never computed and needs no page, but this is not relied on."""
        fewest = self.kept.most_pages(1)
        if fewest is not None and fewest <= self.num_pages:
            return self.max_positions
        return min(self.max_positions, self.num_pages * PAGE_SIZE)

    @property
    def max_prompt_tokens(self) -> int:
        """Returns the longest prompt that leaves room for an answer."""
        if self.has_encoder:
            return min(self.max_positions, (self.num_pages - 1) * PAGE_SIZE)
        return self.max_tokens - 1

    def max_total_tokens(self, request: Request) -> int:
        """Returns the most tokens of a request, without those that an encoder reads."""
        if not request.num_cross_pages:
            return self.max_tokens
        num_pages = self.num_pages - request.num_cross_pages
        return min(self.max_tokens, num_pages * PAGE_SIZE)

    def check_prompt(self, num_prompt_tokens: int) -> None:
        """Raises RequestError or CapacityError for a prompt that can never be answered."""
        if self.has_encoder:
            check_encoder_prompt(
                num_prompt_tokens, max_positions=self.max_positions, num_pages=self.num_pages
            )
            return
        check_prompt(
            num_prompt_tokens,
            max_positions=self.max_positions,
            max_tokens=self.max_tokens,
            num_pages=self.num_pages,
        )


def room_after_encoder(request: Request, budget: int) -> int:
    """Returns what is left of a step's tokens when the encoder has read those of a request that
    starts, one at least: it cannot read them in parts."""
    if not request.num_encoder_tokens:
        return budget
    return max(1, budget - request.num_encoder_tokens)
