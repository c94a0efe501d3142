"""ResponseCache: answers kept in front of the machines, for those who ask the same again.

Either a share of requests is taken to be answered from it, or it is simulated: an answer is kept
from when it is finished, and the one asked for longest ago goes first when there are too many.
"""

import random
from collections import OrderedDict
from dataclasses import dataclass

from paredown.errors import ConfigError
from paredown.plan.workload import SimulatedRequest

Identity = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ResponseCacheConfig:
    """`hit_rate` of the requests are hits, whatever they ask; or `num_answers` are kept, and
    requests of a known identity find theirs. Raises ConfigError."""

    hit_rate: float = 0.0
    num_answers: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.hit_rate < 1:
            raise ConfigError(
                "the hit rate of the response cache is out of range",
                seen=self.hit_rate,
                remedy="Use a share from 0 to below 1.",
            )
        if self.num_answers < 0 or (self.num_answers and self.hit_rate):
            raise ConfigError(
                "a response cache has either a hit rate or a number of answers",
                seen=f"{self.hit_rate:g} and {self.num_answers}",
                remedy="Give one of them.",
            )


class ResponseCache:
    def __init__(self, config: ResponseCacheConfig, seed: int = 0) -> None:
        self._config = config
        self._rng = random.Random(seed)
        self._answers: OrderedDict[Identity, None] = OrderedDict()

    def answers(self, asked: SimulatedRequest) -> bool:
        """Whether the answer is here."""
        if self._config.hit_rate:
            return self._rng.random() < self._config.hit_rate
        identity = asked.identity
        if identity is None or identity not in self._answers:
            return False
        self._answers.move_to_end(identity)
        return True

    def wants(self, asked: SimulatedRequest) -> bool:
        """Whether the answer is to be kept once it is there."""
        return bool(self._config.num_answers) and asked.identity is not None

    def keep(self, identity: Identity) -> None:
        self._answers[identity] = None
        self._answers.move_to_end(identity)
        if len(self._answers) > self._config.num_answers:
            self._answers.popitem(last=False)
