"""Proposer: guesses the next tokens of requests, before the model is asked for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paredown.engine.request import Request
from paredown.kernels.native_sampler import SamplingState


@dataclass(frozen=True, slots=True)
class Ask:
    """A request whose next `max_tokens` tokens, 1 or more, are to be guessed. A proposer changes
    nothing of it, and leaves the `state` of its sampling, which lookups do without, as it was."""

    request: Request
    max_tokens: int
    state: SamplingState | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """At most `max_tokens` guesses; none is an answer too.

    `probs_KV[k]` is the distribution that guess k was drawn from. It is empty where the guesses
    follow from the text (and the request's own draws) alone.
    """

    token_ids: list[int]
    probs_KV: list[npt.NDArray[np.float64]] = field(default_factory=list)


NO_DRAFT = Draft([])


class Proposer(Protocol):
    """`token_ids` of a request only ever grows between two calls: guesses that came true, and a
    token of the model's own after them. Not thread-safe."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A draft for each ask, in their order."""
        ...

    def forget(self, request: Request) -> None:
        """The request has ended, with these `token_ids`; it will not be asked about again."""
        ...
