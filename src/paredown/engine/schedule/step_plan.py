"""StepPlan: the work of one step."""

from dataclasses import dataclass, field

from paredown.engine.request import Request

# A number of tokens of a request from its `num_computed_tokens` on, drafts included.
Chunk = tuple[Request, int]


@dataclass(slots=True)
class StepPlan:
    """`page_copies` are (from, to) pairs, to be copied in this order before anything is computed.

    `is_repeated` means that the chunks are those of the previous plan, each one token further.
    """

    chunks: list[Chunk] = field(default_factory=list)
    page_copies: list[tuple[int, int]] = field(default_factory=list)
    is_repeated: bool = False

    @property
    def num_tokens(self) -> int:
        return sum(num_tokens for _, num_tokens in self.chunks)
