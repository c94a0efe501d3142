"""Grammars: checks grammars in a process of their own, compiles them, and keeps them."""

import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from paredown.engine.grammar.grammar import Grammar, GrammarError
from paredown.engine.grammar.limits import CHECK_CPU_S, CONFINEMENT, MAX_CACHED
from paredown.engine.grammar.vocabulary import Vocabulary
from paredown.models.text.confined_process import (
    ConfinedProcess,
    LateError,
    LimitError,
    NoProcessError,
    NotStartedError,
    ProgramError,
)

if TYPE_CHECKING:  # the library takes memory, and few engines see a grammar
    from llguidance import LLTokenizer

    from paredown.engine.grammar.compiled_grammar import CompiledGrammar

_SIMPLER = "Send a simpler grammar: fewer rules or keywords, smaller bounds, less nesting."


class Grammars:
    """The grammars of one model. The last used ones are kept, and those of live requests. Threads
    may share it."""

    def __init__(self, tokenizer: object, vocab_size: int) -> None:
        """`tokenizer` is read when the first grammar comes. The model has `vocab_size` logits."""
        self._model_tokens = tokenizer, vocab_size
        # Held while a grammar is compiled, one at a time, and while the cache is read.
        self._turn = threading.Lock()
        self._door = threading.Lock()
        self._recent = OrderedDict[bytes, "CompiledGrammar"]()
        self._alive = WeakValueDictionary[bytes, "CompiledGrammar"]()
        self._tokenizer: LLTokenizer | None = None
        self._process: ConfinedProcess | None = None

    def find(self, grammar: Grammar) -> "CompiledGrammar | None":
        """Returns the compiled grammar if it is there. It then lives as long as `grammar`."""
        digest = grammar.digest
        with self._door:
            found = self._alive.get(digest)
            if found is None:
                return None
            self._recent[digest] = found
            self._recent.move_to_end(digest)
            if len(self._recent) > MAX_CACHED:
                self._recent.popitem(last=False)
        grammar.keep(found)
        return found

    def compile(self, grammar: Grammar) -> "CompiledGrammar":
        """Returns the compiled grammar, checked first if it is new; that may take seconds. Raises
        GrammarError; UnsupportedError for a model that cannot follow any; NoProcessError."""
        if (found := self.find(grammar)) is not None:
            return found
        with self._turn:
            if (found := self.find(grammar)) is not None:
                return found
            if self._tokenizer is None:
                self._tokenizer = self._open()
            from paredown.engine.grammar.compiled_grammar import CompiledGrammar

            compiled = CompiledGrammar(self._checked(grammar), self._tokenizer)
            with self._door:
                self._alive[grammar.digest] = compiled
        found = self.find(grammar)
        assert found is compiled
        return found

    def close(self) -> None:
        """Ends the process; the next grammar starts another."""
        with self._turn:
            if self._process is not None:
                self._process.close()

    def _open(self) -> "LLTokenizer":
        """Reads the tokens here, while the process reads them too."""
        vocabulary = Vocabulary.of(*self._model_tokens)
        process = ConfinedProcess(CONFINEMENT, vocabulary.to_bytes())
        try:
            process.start()
            tokenizer = vocabulary.open()
        except BaseException as error:
            process.close()
            if isinstance(error, NotStartedError):
                raise NoProcessError("the check of a grammar", error) from error
            raise
        self._process = process
        return tokenizer

    def _checked(self, grammar: Grammar) -> str:
        assert self._process is not None
        request = json.dumps([grammar.kind, grammar.text]).encode()
        try:
            text, wrong = json.loads(self._process.ask(request, cpu_s=CHECK_CPU_S))
        except NotStartedError as error:
            raise NoProcessError("the check of a grammar", error) from error
        except LateError as error:
            raise GrammarError(
                "the grammar could not be checked in time",
                seen=error,
                remedy="Send it again later.",
                origin=grammar.origin,
            ) from error
        except (LimitError, ProgramError) as error:
            raise GrammarError(
                "the grammar takes too much to check",
                seen=error,
                remedy=_SIMPLER,
                origin=grammar.origin,
            ) from error
        if wrong is not None:
            raise GrammarError(
                "the grammar cannot be used",
                seen=wrong,
                remedy="Leave out what is not supported; docs/guide/structured_output.md lists "
                "what is.",
                origin=grammar.origin,
            )
        assert isinstance(text, str)
        return text
