"""Checks grammars as the program of a ConfinedProcess: whatever a grammar does to the library, it
does it there."""

import json
import os
import resource
from collections.abc import Callable

from llguidance import LLMatcher

from paredown.engine.grammar.compiled_grammar import told
from paredown.engine.grammar.grammar import as_kind
from paredown.engine.grammar.limits import CHECK_PRIORITY, CHECK_STACK_BYTES, parser_limits
from paredown.engine.grammar.lowered import lowered
from paredown.engine.grammar.not_supported import NotSupportedError
from paredown.engine.grammar.vocabulary import Vocabulary

# The library's name for a grammar that nothing satisfies.
_NOTHING = "NoExtension"


def make_checker(setup: bytes) -> Callable[[bytes], bytes]:
    """Returns the checker. `setup` is a vocabulary. A request is a JSON list of kind and text; the
    answer a JSON list of llguidance's grammar and None, or of None and what is wrong."""
    tokenizer = Vocabulary.from_bytes(setup).open()
    os.nice(CHECK_PRIORITY)  # a client waits for the first, and grammars may take long
    limits = parser_limits()
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (CHECK_STACK_BYTES, hard))

    def check(request: bytes) -> bytes:
        kind, text = json.loads(request)
        wrong = ""
        try:
            for grammar in lowered(as_kind(kind), text):
                wrong = _try(LLMatcher(tokenizer, grammar, log_level=0, limits=limits))
                if not wrong:
                    return json.dumps([grammar, None]).encode()
                if "oneOf" not in wrong:
                    break
        except NotSupportedError as error:
            wrong = str(error)
        return json.dumps([None, _in_our_words(wrong) if kind == "json_schema" else wrong]).encode()

    return check


def _in_our_words(wrong: str) -> str:
    """Returns what the library says of a schema, with the client's keywords and without names of
    ours."""
    wrong = wrong.partition("\n  while processing")[0]
    if wrong.startswith("regex"):
        return f"pattern: {wrong}"
    if wrong.startswith("oneOf"):
        return "oneOf: its options may overlap"
    if wrong.startswith("circular references"):
        return "$ref: a loop of references whose parts all have other keywords"
    return wrong


def _try(matcher: LLMatcher) -> str:
    """Returns what is wrong with a grammar, or an empty text."""
    mask = b"" if matcher.is_error() else matcher.compute_bitmask()
    wrong = told(matcher) if matcher.is_error() else ""
    if _NOTHING in wrong or not (wrong or any(mask)):
        return "it allows no text at all"
    return wrong
