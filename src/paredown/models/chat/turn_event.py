"""TurnEvent: what a model's turn is made of, in the order in which it comes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Content:
    """A piece of the text that people read."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """The start of the call number `index` of a turn, of the tool called `name`. The caller gives
    it an id."""

    index: int
    name: str


@dataclass(frozen=True)
class CallArguments:
    """A piece of the JSON text of a call's arguments."""

    index: int
    text: str


TurnEvent = Content | Reasoning | CallStart | CallArguments
