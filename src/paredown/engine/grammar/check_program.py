"""Checks grammars as the program of a ConfinedProcess: whatever a grammar does to the library, it
does it there."""

import json
import os
import resource
from collections.abc import Callable

from llguidance import LLMatcher

from paredown.engine.grammar.grammar import as_kind
from paredown.engine.grammar.limits import CHECK_PRIORITY, CHECK_STACK_BYTES, parser_limits
from paredown.engine.grammar.lowered import lowered
from paredown.engine.grammar.not_supported import NotSupportedError
from paredown.engine.grammar.vocabulary import Vocabulary


def make_checker(setup: bytes) -> Callable[[bytes], bytes]:
    """Returns the checker. `setup` is a vocabulary. A request is a JSON list of kind and text; the
    answer a JSON list of llguidance's grammar and None, or of None and what is wrong."""
    os.nice(CHECK_PRIORITY)
    tokenizer = Vocabulary.from_bytes(setup).open()
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
        if kind == "json_schema" and wrong.startswith("regex"):
            wrong = f"pattern: {wrong}"
        return json.dumps([None, wrong]).encode()

    return check


def _try(matcher: LLMatcher) -> str:
    """Returns what is wrong with a grammar, or an empty text."""
    mask = b"" if matcher.is_error() else matcher.compute_bitmask()
    if matcher.is_error():
        return matcher.get_error()
    return "" if any(mask) else "it allows no text at all"
