"""CompiledGrammar: a grammar that the check accepted, ready for answers."""

import threading

from llguidance import LLMatcher, LLTokenizer

from paredown.engine.grammar.limits import parser_limits


def told(matcher: LLMatcher) -> str:
    """Returns the error of a matcher, without what stands there in place of the grammar."""
    error: str = matcher.get_error()
    return error.partition("\n<non-verbose")[0]


class CompiledGrammar:
    """Gives each answer a matcher. All of one grammar share its lexer's states, which are found as
    answers need them, and so they share an error of the lexer, too: `renew` begins anew."""

    def __init__(self, text: str, tokenizer: LLTokenizer) -> None:
        """`text` is a grammar of llguidance that the confined process has accepted."""
        self._text = text
        self._tokenizer = tokenizer
        # As many bits has a mask.
        self.num_tokens: int = tokenizer.vocab_size
        self._lock = threading.Lock()
        self._first = self._make()

    def matcher(self) -> LLMatcher:
        """Returns a matcher at the beginning of an answer."""
        with self._lock:
            return self._first.deep_copy()

    def renew(self) -> LLMatcher:
        """Does the same with a lexer of its own, which later matchers share."""
        with self._lock:
            self._first = self._make()
            return self._first.deep_copy()

    def _make(self) -> LLMatcher:
        return LLMatcher(self._tokenizer, self._text, log_level=0, limits=parser_limits())
