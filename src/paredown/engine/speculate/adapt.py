"""How many tokens to guess: as many as raise the tokens per second of the step, as measured.

A step that takes n tokens lasts T(n). Where memory binds, T hardly grows with the first tokens,
because the weights are read once for all of them (the flat part of the roofline); where arithmetic
binds, it grows in proportion. Request i's guess comes true with probability a_i when all before it
did, so its k-th guess adds a_i^k tokens to what the step gives:

    tokens per second = (N + sum over i of (a_i + a_i^2 + ... + a_i^K_i))
                        / (T(n + sum K_i) + D max K_i)

N requests get a token in any case, and D is the time of guessing one more token for all. Guesses
are added one by one, the most probable first, and the best rate wins. No guess at all wins where
that pays best: in a large batch, with bad guesses, with a dear draft model.

T, D and a_i are measured while the engine runs (T: step_cost.py). They are estimates, and not all
is in them: some requests find nothing to guess, a draft model has to catch up with what was not
guessed. So what guessing really cost is kept count of (debt.py), and it ends where that is a loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from paredown.engine.speculate.debt import Debt
from paredown.engine.speculate.step_cost import Quartile, StepCost

# What is not taken for so many steps, guesses or none, is taken a few times, to be measured anew.
PROBE_STEPS = 128
_NUM_PROBES = 4
# A choice is kept for so many steps of the same requests: choosing takes time, too.
_KEEP_STEPS = 4
# Where no guess pays, for so many steps not even that is asked.
_REST_STEPS = 12
# Guesses that may follow the best number before the search ends: a step is as long for the first
# token of a kernel's tile as for the last.
_LOOKAHEAD = 16
# A step that takes so many times the usual was interrupted.
_INTERRUPTED = 1.25
# Guesses less probable than this are not considered.
_MIN_PROBABILITY = 0.02
# Measured times are not exact: guessing must promise to be faster by this.
_MIN_GAIN = 1.03
# The share of guesses that come true, before the first was tested, and how many it counts for.
_FIRST_RATE = 0.7
_FIRST_WEIGHT = 8.0
_PRIOR_WEIGHT = 2.0


@dataclass(kw_only=True)
class Acceptance:
    """How often guesses come true. Old counts fade, so that it follows the text."""

    fading: float = 0.9
    accepted: float = 0.0
    tested: float = 0.0

    def observe(self, num_proposed: int, num_accepted: int) -> None:
        """A guess after a rejected one was not tested."""
        self.fade()
        self.accepted += num_accepted
        self.tested += min(num_accepted + 1, num_proposed)

    def fade(self) -> None:
        """What was seen counts less: the rate moves towards the prior."""
        self.accepted *= self.fading
        self.tested *= self.fading

    def rate(self, prior: float, weight: float) -> float:
        """The share of tested guesses that came true, with `weight` guesses of `prior` added."""
        return (self.accepted + prior * weight) / (self.tested + weight)


_UNTESTED = Acceptance()


@dataclass(kw_only=True)
class Adapter:
    """Chooses K for each request of a step."""

    cost: StepCost = field(default_factory=StepCost)
    debt: Debt = field(default_factory=Debt)
    # Of all requests; slow, and what a new one starts from.
    overall: Acceptance = field(default_factory=lambda: Acceptance(fading=0.99))
    _requests: dict[int, Acceptance] = field(default_factory=dict)
    _round: Quartile = field(default_factory=Quartile)
    _chosen: dict[int, int] = field(default_factory=dict)
    # The tokens of the step that was chosen for, and since how many steps.
    _num_tokens: int = 0
    _age: int = 0
    _num_since_guess: int = 0
    _num_since_none: int = 0
    _num_probes: int = 0
    _num_plain_probes: int = 0
    _num_rest_steps: int = 0

    def rests(self) -> bool:
        """Whether there is nothing to choose in this step. To be asked once a step."""
        self._num_rest_steps = max(self._num_rest_steps - 1, 0)
        return self._num_rest_steps > 0

    def choose(self, limits: dict[int, int], num_tokens: int) -> dict[int, int]:
        """K by request id, at most its limit, and 0 where it is left out; `num_tokens` is the step
        without guesses."""
        if self._num_since_none >= PROBE_STEPS:
            self._num_plain_probes = _NUM_PROBES
        if self._num_plain_probes or not self.cost.is_known(num_tokens):
            self._num_plain_probes = max(self._num_plain_probes - 1, 0)
            return {}
        if self.debt.is_due:
            self._num_probes = 0
            return {}
        if self._num_since_guess >= PROBE_STEPS:
            self._num_probes = _NUM_PROBES
        if self._num_probes:
            self._num_probes -= 1
            return {one: min(limit, 1) for one, limit in limits.items()}
        self._age += 1
        is_same = num_tokens == self._num_tokens and self._chosen.keys() == limits.keys()
        if not is_same or self._age >= _KEEP_STEPS:
            prior = self.overall.rate(_FIRST_RATE, _FIRST_WEIGHT)
            rates = [
                self._requests.get(one, _UNTESTED).rate(prior, _PRIOR_WEIGHT) for one in limits
            ]
            counts = best_counts(
                rates, list(limits.values()), num_tokens, self.cost, self._round.value
            )
            self._chosen = dict(zip(limits, counts, strict=True))
            if not any(counts):
                self._num_rest_steps = _REST_STEPS
            for one, count in self._chosen.items():
                if not count and one in self._requests:  # else it would never be tried again
                    self._requests[one].fade()
            # A size that is tried for the first time is not kept.
            is_known = self.cost.is_known(num_tokens + sum(counts))
            self._num_tokens, self._age = num_tokens, 0 if is_known else _KEEP_STEPS
        return {one: min(self._chosen[one], limit) for one, limit in limits.items()}

    def observe_step(
        self,
        num_tokens: int,
        num_guesses: int,
        seconds: float,
        *,
        num_accepted: int = 0,
        proposal_s: float = 0.0,
    ) -> None:
        """A step of `num_tokens` tokens, `num_guesses` of them guesses, of which `num_accepted`
        came true, took `seconds`; guessing took `proposal_s` before it."""
        self.cost.observe(num_tokens, seconds)
        num_plain = num_tokens - num_guesses
        if not num_guesses:
            self.debt.pay(seconds, proposal_s)
        elif self.cost.is_known(num_plain):
            plain_s = self.cost.typical(num_plain)
            # An interrupted step tells nothing.
            limit_s = _INTERRUPTED * max(self.cost.typical(num_tokens), plain_s)
            self.debt.guess(min(seconds, limit_s) + proposal_s, plain_s, num_plain, num_accepted)
        self._num_since_guess = 0 if num_guesses else self._num_since_guess + 1
        self._num_since_none = self._num_since_none + 1 if num_guesses else 0

    def observe_proposal(self, num_rounds: int, seconds: float) -> None:
        """Guessing up to `num_rounds` tokens for each request took `seconds`."""
        self._round.add(seconds / num_rounds)

    def observe_acceptance(self, request_id: int, num_proposed: int, num_accepted: int) -> None:
        self.overall.observe(num_proposed, num_accepted)
        self._requests.setdefault(request_id, Acceptance()).observe(num_proposed, num_accepted)

    def forget(self, request_id: int) -> None:
        self._requests.pop(request_id, None)


def best_counts(
    rates: Sequence[float],
    limits: Sequence[int],
    num_tokens: int,
    cost: StepCost,
    round_s: float,
) -> list[int]:
    """The K_i of the highest tokens per second (see the top of this file); `num_tokens` is the step
    without guesses, `round_s` is D."""
    seconds = cost.estimates(num_tokens, sum(limits))
    counts = [0] * len(rates)
    base_s = next(seconds, None)
    if base_s is None:
        return counts
    # The next guess of each request, the most probable first; of equal ones the earlier round.
    heap = [(-rate, 1, i) for i, rate in enumerate(rates) if limits[i]]
    heapify(heap)
    order: list[int] = []
    num_gained, num_rounds = float(len(rates)), 0
    best, num_best = num_gained / base_s * _MIN_GAIN, 0
    for step_s in seconds:
        minus_probability, k, i = heap[0]
        if -minus_probability < _MIN_PROBABILITY or len(order) > num_best + _LOOKAHEAD:
            break
        if k < limits[i]:
            heapreplace(heap, (minus_probability * rates[i], k + 1, i))
        else:
            heappop(heap)
        order.append(i)
        num_gained -= minus_probability
        num_rounds = max(num_rounds, k)
        tokens_per_s = num_gained / (step_s + num_rounds * round_s)
        if tokens_per_s > best:
            best, num_best = tokens_per_s, len(order)
    for i in order[:num_best]:
        counts[i] += 1
    return counts
