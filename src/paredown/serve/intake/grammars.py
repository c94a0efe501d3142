"""ServerGrammars: compiles the grammars of requests beside the event loop and the engine."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from paredown.engine.grammar.grammar import Grammar
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.engine.worker import Worker

MAX_WAITING = 64


class ServerGrammars:
    """Compiles one grammar at a time; at most MAX_WAITING wait."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._thread = ThreadPoolExecutor(1, "paredown-grammars")
        self._num_inside = 0

    async def compile(self, grammar: Grammar | None) -> None:
        """Makes the grammar ready, so that the engine finds it. Does nothing for None. Raises
        GrammarError, which names the keyword at fault; QueueFullError; UnavailableError."""
        if grammar is None:
            return
        grammars = self._worker.grammars
        if grammars.find(grammar) is not None:
            return
        if self._num_inside > MAX_WAITING:
            raise QueueFullError(
                "too many grammars wait to be compiled",
                seen=f"{self._num_inside - 1} waiting of at most {MAX_WAITING}",
                remedy="Send the request again later.",
            )
        self._num_inside += 1
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, grammars.compile, grammar)
        finally:
            self._num_inside -= 1
