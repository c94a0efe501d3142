"""Constraint: how far one answer has come in its grammar."""

from collections.abc import Sequence

from llguidance import LLMatcher

from paredown.engine.grammar.compiled_grammar import CompiledGrammar, told


class Constraint:
    """Follows the generated tokens of one answer. They are taken in when the next token is asked
    for, so that nothing is to be undone when a step fails or a request is preempted."""

    def __init__(self, compiled: CompiledGrammar) -> None:
        self._compiled = compiled
        self.num_tokens = compiled.num_tokens
        self.matcher: LLMatcher = compiled.matcher()
        # How many of the answer's tokens the matcher has seen.
        self.num_seen = 0

    def see(self, generated: Sequence[int]) -> None:
        """Takes in what is new of `generated`, all tokens of the answer so far."""
        new = generated[self.num_seen :]
        if new:
            self.matcher.consume_tokens(list(new))
            self.num_seen = len(generated)

    def allowed_part(self, generated: Sequence[int], draft: Sequence[int]) -> Sequence[int]:
        """Returns the beginning of `draft` that the grammar allows after `generated`."""
        self.see(generated)
        return draft[: self.matcher.validate_tokens(list(draft))]

    def forced_tokens(self, generated: Sequence[int]) -> list[int]:
        """Returns tokens that must follow `generated`, where the grammar leaves no choice."""
        self.see(generated)
        forced: list[int] = [] if self.matcher.is_stopped() else self.matcher.compute_ff_tokens()
        return forced

    def begin_again(self, generated: Sequence[int]) -> None:
        """Replaces a matcher that has failed by one that has seen the same tokens and shares
        nothing with it."""
        self.matcher, self.num_seen = self._compiled.renew(), 0
        self.see(generated)

    @property
    def failure(self) -> str | None:
        """Returns why the matcher can go on no further, if it cannot."""
        return told(self.matcher) if self.matcher.is_error() else None
