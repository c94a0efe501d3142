"""CountedRequest: a request of which only the number of tokens is known.

The scheduler only needs to know how many tokens there are and which pages hold the same ones. A
simulated request therefore has a count instead of a list, and numbers instead of page contents.
"""

from collections.abc import Sequence
from typing import Final

from paredown.engine.memory.prefix_cache import PageContents
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.service import Service

_PARAMS: Final = SamplingParams()
_SERVICE: Final = Service()
# Separates the numbers of a request's unshared pages from all others.
_MAX_PAGES = 1 << 24


class TokenCount(list[int]):
    """Stands in for a list of token ids: it has their length but holds none."""

    __slots__ = ("length",)

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return self.length > 0


class CountedRequest(Request):
    """`page_contents` are non-negative numbers for the first full pages of the prompt. Equal
    numbers in two requests mean equal tokens; all other pages are the request's own.

    `index` is for the caller.
    """

    __slots__ = ("_tokens", "index", "page_contents")

    def __init__(
        self,
        *,
        id: int,
        num_prompt_tokens: int,
        num_output_tokens: int,
        arrival_s: float = 0.0,
        page_contents: Sequence[int] = (),
        service: Service = _SERVICE,
        index: int = 0,
    ) -> None:
        assert num_output_tokens >= 1
        self._tokens = tokens = TokenCount(num_prompt_tokens)
        self.page_contents = page_contents
        super().__init__(
            id=id,
            params=_PARAMS,
            num_prompt_tokens=num_prompt_tokens,
            token_ids=tokens,
            max_total_tokens=num_prompt_tokens + num_output_tokens,
            service=service,
            arrival_s=arrival_s,
        )
        self.index = index

    def add_tokens(self, num_tokens: int) -> None:
        """Counts generated tokens."""
        self._tokens.length += num_tokens

    def contents(self, start: int, end: int) -> PageContents:
        return _NumberedPages(self.page_contents, self.id, start)


class _NumberedPages:
    """Implements PageContents."""

    __slots__ = ("_own", "_shared", "_start")

    def __init__(self, shared: Sequence[int], request_id: int, start: int) -> None:
        self._shared = shared
        self._own = -1 - request_id * _MAX_PAGES
        self._start = start

    def __getitem__(self, index: int, /) -> int:
        index += self._start
        return self._shared[index] if index < len(self._shared) else self._own - index
