"""Proposer: proposes the next tokens of requests, before the model is asked for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paredown.engine.request import Request
from paredown.executors.sampler import SamplingState


@dataclass(frozen=True, slots=True)
class Ask:
    """A request whose next `max_tokens` tokens, 1 or more, are to be proposed. A proposer changes
    nothing of it, and leaves the `state` of its sampling, which lookups do without, as it was."""

    request: Request
    max_tokens: int
    state: SamplingState | None = None


class Proposer(Protocol):
    """`token_ids` of a request only ever grows between two calls: draft tokens that were accepted,
    and a token of the model's own after them. Not thread-safe."""

    def propose(self, asks: Sequence[Ask]) -> list[list[int]]:
        """A draft for each ask, in their order: at most `max_tokens` draft tokens, or none."""
        ...

    def forget(self, request: Request) -> None:
        """The request has ended, with these `token_ids`; it will not be asked about again."""
        ...
