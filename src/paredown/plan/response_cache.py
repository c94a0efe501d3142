"""ResponseCache: answers kept in front of the machines for repeated requests.

Either a fixed share of requests counts as hits, or the cache is simulated. A simulated cache keeps
an answer once it is finished, and drops the least recently used one when it is full.
"""

import random
from collections import OrderedDict
from dataclasses import dataclass

from paredown.errors import ConfigError
from paredown.plan.workload import SimulatedRequest

Identity = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ResponseCacheConfig:
    """Either `hit_rate` of the requests are hits, whatever they ask, or `num_answers` answers are
    kept and requests with a known identity find theirs. Raises ConfigError."""

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
        """Returns whether the cache has the answer."""
        if self._config.hit_rate:
            return self._rng.random() < self._config.hit_rate
        identity = asked.identity
        if identity is None or identity not in self._answers:
            return False
        self._answers.move_to_end(identity)
        return True

    def wants(self, asked: SimulatedRequest) -> bool:
        """Returns whether the answer should be kept once it is finished."""
        return bool(self._config.num_answers) and asked.identity is not None

    def keep(self, identity: Identity) -> None:
        self._answers[identity] = None
        self._answers.move_to_end(identity)
        if len(self._answers) > self._config.num_answers:
            self._answers.popitem(last=False)
