"""The server compiles grammars one at a time, and lets so many wait."""

import asyncio
import threading
from typing import cast

import pytest

from paredown.engine.grammar.grammar import Grammar
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.engine.worker import Worker
from paredown.serve.intake.grammars import MAX_WAITING, ServerGrammars


class SlowGrammars:
    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.num_inside = self.most_inside = 0

    def find(self, grammar: Grammar) -> str | None:
        return "known" if grammar.text == '["known"]' else None

    def compile(self, grammar: Grammar) -> None:
        self.num_inside += 1
        self.most_inside = max(self.most_inside, self.num_inside)
        self.go_on.wait(10)
        self.num_inside -= 1


class GrammarWorker:
    def __init__(self) -> None:
        self.grammars = SlowGrammars()


def test_known_grammars_wait_for_nobody_and_others_wait_in_bounds() -> None:
    async def run() -> None:
        worker = GrammarWorker()
        grammars = ServerGrammars(cast(Worker, worker))
        compiling = [
            asyncio.create_task(grammars.compile(Grammar.choice([str(i)])))
            for i in range(MAX_WAITING + 1)
        ]
        await asyncio.sleep(0.01)
        await grammars.compile(None)
        await grammars.compile(Grammar.choice(["known"]))
        with pytest.raises(QueueFullError, match="grammars wait"):
            await grammars.compile(Grammar.choice(["one more"]))
        worker.grammars.go_on.set()
        await asyncio.gather(*compiling)
        assert worker.grammars.most_inside == 1
        await grammars.compile(Grammar.choice(["one more"]))

    asyncio.run(run())
