"""DrawLimits: applies token filters and grammars before tokens are drawn."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from paredown.engine.active_request import ActiveRequest
from paredown.engine.grammar.grammars import Grammars
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.sampling.token_filter import TokenFilterError, allowed_tokens

if TYPE_CHECKING:  # few requests have a grammar, and the library takes memory
    from paredown.engine.grammar.constraint import Constraint
    from paredown.engine.grammar.masks import Mask, MaskThreads


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

    def constraint(self, params: SamplingParams) -> "Constraint | None":
        """Returns what holds an answer to its grammar, if it has one. Raises GrammarError,
        UnsupportedError or NoProcessError where the grammar was not compiled before."""
        if params.grammar is None:
            return None
        from paredown.engine.grammar.constraint import Constraint

        return Constraint(self._grammars.compile(params.grammar))

    def cut_drafts(self, active: Iterable[ActiveRequest]) -> None:
        """Leaves of the proposed draft tokens those that the grammars allow. An end needs no
        draft."""
        for live in active:
            if live.constraint is None or not (draft := live.request.draft_token_ids):
                continue
            ends = (i for i, token_id in enumerate(draft) if token_id in live.ending)
            draft = draft[: next(ends, len(draft))]
            live.request.draft_token_ids = live.constraint.allowed_part(live.generated, draft)

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
