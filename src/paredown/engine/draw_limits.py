"""DrawLimits: applies token filters and grammars before tokens are drawn."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from paredown.engine.active_request import ActiveRequest
from paredown.engine.grammar.grammars import Grammars
from paredown.engine.request import Request
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.sampling.token_filter import TokenFilterError, allowed_tokens

if TYPE_CHECKING:  # few requests have a grammar, and the library takes memory
    from paredown.engine.grammar.constraint import Constraint
    from paredown.engine.grammar.masks import Mask, MaskThreads


# Draft tokens that are certain; a step computes a row of logits for each.
_MAX_FORCED = 16


class Ready(NamedTuple):
    """A request that may draw, and the draft tokens that it may go on with."""

    live: ActiveRequest
    draft: Sequence[int]


class DrawLimits:
    """The filters and grammars of one engine's requests. Not thread-safe."""

    def __init__(self, grammars: Grammars, vocab_size: int, num_threads: int) -> None:
        self._grammars = grammars
        self._vocab_size = vocab_size
        self._num_threads = num_threads
        self._threads: MaskThreads | None = None
        self._num_constrained = 0

    def constraint(self, params: SamplingParams) -> "Constraint | None":
        """Returns what holds an answer to its grammar, if it has one. Raises GrammarError,
        UnsupportedError or NoProcessError where the grammar was not compiled before."""
        if params.grammar is None:
            return None
        from paredown.engine.grammar.constraint import Constraint

        made = Constraint(self._grammars.compile(params.grammar))
        self._num_constrained += 1
        return made

    def forget(self, live: ActiveRequest) -> None:
        """Drops a request that has ended."""
        self._num_constrained -= live.constraint is not None

    def cut_drafts(self, active: Iterable[ActiveRequest]) -> None:
        """Leaves of the proposed draft tokens those that the grammars allow."""
        for live in active:
            if live.constraint is not None and (draft := live.request.draft_token_ids):
                draft = live.constraint.allowed_part(live.generated, _before_end(live, draft))
                live.request.draft_token_ids = draft

    def draft_forced(self, running: Iterable[Request], active: Mapping[int, ActiveRequest]) -> bool:
        """Gives requests whose next step computes their last token the tokens that their grammar
        forces to follow as a draft, so that one step computes them all. Returns whether any has
        one. They are drawn like others."""
        found = False
        for request in running if self._num_constrained else ():
            live = active[request.id]
            if live.constraint is None or live.token_filter is not None:
                continue
            num_tokens = len(request.token_ids)
            room = min(request.max_total_tokens - num_tokens - 1, _MAX_FORCED)
            request.draft_token_ids = ()  # of one that had no place in the last step
            if request.num_computed_tokens == num_tokens - 1 and room > 0:
                forced = live.constraint.forced_tokens(live.generated)[:room]
                request.draft_token_ids = _before_end(live, forced)
                found = found or bool(request.draft_token_ids)
        return found

    def apply(
        self, active: Sequence[ActiveRequest]
    ) -> tuple[list[Ready], list[tuple[ActiveRequest, str]]]:
        """Limits the next draw of each request. Returns those that may draw, and the others with
        what is wrong. Behind a token filter there is one draw at a time, since it comes first."""
        ready: list[Ready] = []
        failed: list[tuple[ActiveRequest, str]] = []
        constrained = [one for one in active if one.constraint is not None]
        masks = iter(self._masks(constrained))
        for live in active:
            mask = None if live.constraint is None else next(masks)
            try:
                if live.token_filter is not None:
                    self._filter(live)
                if mask is not None and mask.failure is not None:
                    raise TokenFilterError(f"the grammar went beyond a limit: {mask.failure}")
            except TokenFilterError as error:
                failed.append((live, str(error)))
                continue
            draft = live.next_drafts
            if mask is not None:
                live.sampling.mask_next(mask.rows_RW)
                draft = mask.draft
            ready.append(Ready(live, () if live.token_filter is not None else draft))
        return ready, failed

    def _masks(self, constrained: Sequence[ActiveRequest]) -> "list[Mask]":
        if not constrained:
            return []
        from paredown.engine.grammar.masks import Asked, MaskThreads

        if self._threads is None:
            self._threads = MaskThreads(self._num_threads)
        asked = []
        for live in constrained:
            assert live.constraint is not None
            draft = () if live.token_filter is not None else live.next_drafts
            asked.append(Asked(live.constraint, live.generated, draft))
        return self._threads.compute(asked)

    def _filter(self, live: ActiveRequest) -> None:
        assert live.token_filter is not None
        allowed = allowed_tokens(live.token_filter, live.generated, self._vocab_size)
        if allowed is not None:
            live.sampling.allow_next(allowed)


def _before_end(live: ActiveRequest, draft: Sequence[int]) -> Sequence[int]:
    """Returns the draft up to a token that ends the answer, which needs no draft."""
    ends = (i for i, token_id in enumerate(draft) if token_id in live.ending)
    return draft[: next(ends, len(draft))]
