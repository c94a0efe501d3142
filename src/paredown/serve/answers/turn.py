"""Turn: what a model said in one answer, put together from the events of its parser."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from paredown.models.chat.turn_event import (
    CallArguments,
    CallStart,
    Content,
    Reasoning,
    TurnEvent,
)

BlockKind = Literal["content", "reasoning", "call"]


@dataclass(slots=True)
class Block:
    """A stretch of one kind: visible text, reasoning, or a call of the tool `name` with its
    arguments as JSON text. Calls are numbered from 0 by `index`."""

    kind: BlockKind
    name: str = ""
    index: int = 0
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Turn:
    """The blocks of an answer in their order."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.num_chars = 0

    @property
    def content(self) -> str:
        """Returns the visible text."""
        return self._text_of("content")

    @property
    def reasoning(self) -> str:
        return self._text_of("reasoning")

    @property
    def calls(self) -> list[Block]:
        return [one for one in self.blocks if one.kind == "call"]

    def add(self, events: Iterable[TurnEvent]) -> None:
        for event in events:
            if isinstance(event, CallStart):
                self.blocks.append(Block("call", event.name, event.index))
                self.num_chars += len(event.name)
            else:
                self._block_of(event).parts.append(event.text)
                self.num_chars += len(event.text)

    def events(self) -> Iterator[TurnEvent]:
        """Yields the events of a turn that came in one piece."""
        for block in self.blocks:
            match block.kind:
                case "content":
                    yield Content(block.text)
                case "reasoning":
                    yield Reasoning(block.text)
                case "call":
                    yield CallStart(block.index, block.name)
                    yield CallArguments(block.index, block.text)

    def _block_of(self, event: Content | Reasoning | CallArguments) -> Block:
        """Returns the block that the event goes on with, a new one where its kind changes."""
        if isinstance(event, CallArguments):
            calls = (one for one in reversed(self.blocks) if one.kind == "call")
            return next(one for one in calls if one.index == event.index)
        kind: BlockKind = "content" if isinstance(event, Content) else "reasoning"
        if not self.blocks or self.blocks[-1].kind != kind:
            self.blocks.append(Block(kind))
        return self.blocks[-1]

    def _text_of(self, kind: BlockKind) -> str:
        return "".join(one.text for one in self.blocks if one.kind == kind)
