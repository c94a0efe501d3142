"""Proposer: proposes the next tokens of requests before the model computes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paredown.engine.request import Request
from paredown.executors.sampler import SamplingState


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for which to propose up to `max_tokens` tokens, at least 1. A proposer must not
    change the request, nor its sampling `state`, which lookups do without."""

    request: Request
    max_tokens: int
    state: SamplingState | None = None


class Proposer(Protocol):
    """Between two calls, a request's `token_ids` only grows: by accepted draft tokens and one token
    of the model itself. Not thread-safe."""

    def propose(self, asks: Sequence[Ask]) -> list[list[int]]:
        """Returns a draft for each ask, in order, with at most `max_tokens` draft tokens or
        none."""
        ...

    def forget(self, request: Request) -> None:
        """Drops a request that has ended with these `token_ids`."""
        ...
