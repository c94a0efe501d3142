"""How many draft tokens to ask for: as many as raise the tokens per second of the step, as
measured.

A step that takes n tokens lasts T(n). Where memory binds, T hardly grows with the first tokens,
because the weights are read once for all of them (the flat part of the roofline); where arithmetic
binds, it grows in proportion. Request i's draft token is accepted with probability a_i when all
before it did, so K_i draft tokens give it g_i = a_i + a_i^2 + ... + a_i^K_i tokens more:

    tokens per second = (N + s sum g_i) / (T(n + sum K_i) + D(max K_i))

N requests get a token in any case, and D(k) is the time of drafting k tokens for all. Draft tokens
are added one by one, the most probable first, or all first ones before all second ones, and the
best rate wins. No draft token at all wins where that pays best: in a large batch, with bad draft
tokens, with a dear draft model.

s is 1 where others wait for a place. Where nobody does, a request that ends sooner only leaves a
smaller batch, whose steps may be no shorter; all have ended when the slowest has. So s is e + (1 -
e) m: of what is gained the share e is gained by all (evenness.py), and the rest counts as much as a
token less in a step saves of what one takes, m.

T, D and a_i are measured while the engine runs (measured_step_cost.py). They are estimates, and not
all is in them: a draft model has to catch up with what was not drafted, a neighbour may come to the
machine. So what drafting really cost is kept count of (debt.py), and it ends where that is a loss.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import islice
from math import inf

from paredown.engine.speculate.debt import Debt
from paredown.engine.speculate.evenness import Evenness
from paredown.engine.speculate.measured_step_cost import MeasuredStepCost
from paredown.engine.speculate.round_cost import RoundCost

# What is not taken for so many steps, draft tokens or none, is taken a few times, to be measured
# anew; where it did not pay then, after twice as many steps the next time, up to the last number.
# Of several requests draft tokens are tried less often, as each step tells more.
PROBE_STEPS = 128
MAX_PROBE_STEPS = 1024
_NUM_PROBES = 4
_MIN_PROBES = 2
# Of so many requests: for all of a batch a draft model has much to catch up with.
_NUM_PROBED = 4
# For so long after draft tokens a step without them takes longer than the next ones: in the
# processor's caches is what drafting needed (1.7 times at 200 us a step, docs/log.md). Such steps
# tell nothing.
_SETTLING_S = 0.002
# A choice is kept for so many steps of the same requests: choosing takes time, too.
_KEEP_STEPS = 4
# Where no draft token pays, for so many steps nothing is asked, looked up or measured; for more of
# them where asking and looking in vain would take more than a share of the time. Of several
# requests it is smaller: that one of them begins to repeat itself is worth little to the others.
_REST_STEPS = 16
_MAX_REST_STEPS = 128
_SHARE_IN_VAIN = 0.0025
_SHARE_IN_VAIN_ALONE = 0.005
# So many of the last steps of a rest count as steps without draft tokens.
_NUM_OF_REST = 3
# Draft tokens that may follow the best number before the search ends: a step is as long for the
# first token of a kernel's tile as for the last.
_LOOKAHEAD = 16
# A step or a call of a proposer that takes so many times the usual was interrupted.
_INTERRUPTED = 1.25
# Draft tokens less probable than this are not considered.
_MIN_PROBABILITY = 0.02
# Measured times are not exact: drafting must promise to be faster by this to begin, and to go on. A
# draft model that is left alone for a while has to catch up.
_MIN_GAIN = 1.03
_MIN_GAIN_ON = 1.01
# The share of draft tokens that come true, before the first was tested, and how many it counts for.
_FIRST_RATE = 0.7
_FIRST_WEIGHT = 8.0
_PRIOR_WEIGHT = 4.0
# What is left of what was seen of a request's draft tokens when none pays for it, but for others,
# and when none does for anyone and a rest follows.
_KEPT_AMONG_OTHERS = 0.9
_KEPT_IN_REST = 0.5


@dataclass(kw_only=True)
class Acceptance:
    """How often draft tokens are accepted. Old counts fade, so that it follows the text."""

    fading: float = 0.95
    accepted: float = 0.0
    tested: float = 0.0

    def observe(self, num_proposed: int, num_accepted: int) -> None:
        """A draft token after a rejected one was not tested."""
        self.accepted = self.fading * self.accepted + num_accepted
        self.tested = self.fading * self.tested + min(num_accepted + 1, num_proposed)

    def fade(self, share: float) -> None:
        """Only so much is left of what was seen: the rate moves towards the prior."""
        self.accepted *= share
        self.tested *= share

    def rate(self, prior: float, weight: float) -> float:
        """The share of tested draft tokens that were accepted, with `weight` draft tokens of
        `prior` added."""
        return (self.accepted + prior * weight) / (self.tested + weight)


_UNTESTED = Acceptance()


@dataclass(kw_only=True)
class Adapter:
    """Chooses K for each request of a step."""

    cost: MeasuredStepCost = field(default_factory=MeasuredStepCost)
    rounds: RoundCost = field(default_factory=RoundCost)
    debt: Debt = field(default_factory=Debt)
    # Of all requests; slow, and what a new one starts from.
    overall: Acceptance = field(default_factory=lambda: Acceptance(fading=0.99))
    evenness: Evenness = field(default_factory=Evenness)
    _requests: dict[int, Acceptance] = field(default_factory=dict)
    _chosen: dict[int, int] = field(default_factory=dict)
    # The tokens of the step that was chosen for, and since how many steps.
    _num_tokens: int = 0
    _age: int = 0
    _num_since_draft: int = 0
    _num_since_none: int = 0
    _num_probes: int = 0
    _is_probing: bool = False
    _num_plain_probes: int = 0
    # Of a rest that is to follow.
    _num_rest_steps: int = 0
    _since_draft_s: float = inf
    _probe_steps: int = PROBE_STEPS
    _plain_probe_steps: int = PROBE_STEPS

    def take_rest(self) -> int:
        """For how many steps to come there is nothing to choose: those are left alone, and what
        they took is told before the next one. To be asked after each other step."""
        num_steps, self._num_rest_steps = self._num_rest_steps, 0
        return num_steps

    def observe_rest(self, steps: Sequence[tuple[int, float]]) -> None:
        """Steps that were left alone: their tokens and seconds."""
        if not steps:
            return
        rested_s = sum(seconds for _, seconds in steps)
        self.debt.pay_for(rested_s)
        for num_tokens, seconds in steps[-_NUM_OF_REST:]:
            self.cost.observe(num_tokens, seconds)
        self._num_since_draft += len(steps)
        self._since_draft_s += rested_s
        self._num_since_none = 0
        self._age = _KEEP_STEPS

    def choose(
        self, limits: dict[int, int], num_tokens: int, *, is_queued: bool = False
    ) -> dict[int, int]:
        """K by request id, at most its limit, and 0 where it is left out; `num_tokens` is the step
        without draft tokens, `is_queued` whether others wait for a place."""
        if not any(limits.values()):  # prompts and last tokens: nothing that does not pay
            return limits
        if self._num_since_none >= self._plain_probe_steps:
            self._num_plain_probes = _NUM_PROBES
            self._num_since_none = 0
            self._plain_probe_steps = min(2 * self._plain_probe_steps, MAX_PROBE_STEPS)
        if self._num_plain_probes or not self.cost.is_within(num_tokens):
            return {}
        if self.debt.is_due:
            self._num_probes = 0
            if self.debt.is_reckoned:
                self._rest()
            return {}
        if self._num_since_draft >= self._probe_steps:
            self._num_probes = max(_NUM_PROBES // len(limits), _MIN_PROBES)
            self._num_since_draft = 0
            self._probe_steps = min(2 * self._probe_steps, MAX_PROBE_STEPS)
        self._is_probing = self._num_probes > 0
        if self._is_probing:
            self._num_probes -= 1
            return {one: min(limit, 1) for one, limit in islice(limits.items(), _NUM_PROBED)}
        self._age += 1
        is_same = num_tokens == self._num_tokens and self._chosen.keys() == limits.keys()
        if not is_same or self._age >= _KEEP_STEPS:
            longest = max(limits.values(), default=0)
            rounds_s = self.rounds.estimates(longest)
            self._chosen = self._best(limits, num_tokens, rounds_s, is_queued)
            share_kept = _KEPT_AMONG_OTHERS
            if any(self._chosen.values()):
                self._probe_steps = PROBE_STEPS
            else:
                share_kept = _KEPT_IN_REST
                self._plain_probe_steps = PROBE_STEPS
                self._rest()
            for one, count in self._chosen.items():
                if not count and one in self._requests:  # else it would never be tried again
                    self._requests[one].fade(share_kept)
            # A size that is tried for the first time is not kept.
            is_known = self.cost.is_known(num_tokens + sum(self._chosen.values()))
            self._num_tokens, self._age = num_tokens, 0 if is_known else _KEEP_STEPS
        return {one: min(self._chosen[one], limit) for one, limit in limits.items()}

    def trim(
        self, found: dict[int, int], num_tokens: int, *, is_queued: bool = False
    ) -> dict[int, int]:
        """How many of the draft tokens found for each request the step is to check, all of them
        where none is missing. What it took to draft them is spent."""
        for one, count in found.items():
            self.evenness.observe(one, count > 0)
        if (
            self._is_probing
            or len(found) < 2
            or all(found[one] == self._chosen.get(one) for one in found)
        ):
            return found
        counts = self._best(found, num_tokens, [], is_queued)
        if not any(counts.values()):
            self._rest()
        return counts

    def _rest(self) -> None:
        self._num_rest_steps = _REST_STEPS

    def _best(
        self, limits: dict[int, int], num_tokens: int, rounds_s: Sequence[float], is_queued: bool
    ) -> dict[int, int]:
        prior = self.overall.rate(_FIRST_RATE, _FIRST_WEIGHT)
        rates = [self._requests.get(one, _UNTESTED).rate(prior, _PRIOR_WEIGHT) for one in limits]
        worth = 1.0
        if not is_queued:
            even = self.evenness.value(dict(zip(limits, rates, strict=True)))
            worth = even + (1 - even) * self.cost.saved_share(num_tokens)
        counts = best_counts(
            rates,
            list(limits.values()),
            num_tokens,
            self.cost,
            rounds_s,
            worth=worth,
            min_gain=_MIN_GAIN_ON if any(self._chosen.values()) else _MIN_GAIN,
        )
        return dict(zip(limits, counts, strict=True))

    def observe_step(
        self,
        num_tokens: int,
        num_draft_tokens: int,
        seconds: float,
        *,
        num_accepted: int = 0,
        drafting_s: float = 0.0,
    ) -> None:
        """A step of `num_tokens` tokens, `num_draft_tokens` of them draft tokens, of which
        `num_accepted` came true, took `seconds`; drafting took `drafting_s` before it."""
        num_plain = num_tokens - num_draft_tokens
        is_settled = self._since_draft_s >= _SETTLING_S
        if num_draft_tokens or is_settled:
            self.cost.observe(num_tokens, seconds)
        if not num_draft_tokens:
            self.debt.pay(seconds, drafting_s, is_settled=is_settled)
            if self._num_rest_steps:
                share = _SHARE_IN_VAIN_ALONE if num_tokens == 1 else _SHARE_IN_VAIN
                num_steps = min(int(drafting_s / (share * seconds)), _MAX_REST_STEPS)
                self._num_rest_steps = max(self._num_rest_steps, num_steps)
        elif self.cost.is_within(num_plain):
            plain_s = self.cost.typical(num_plain)
            # An interrupted step tells nothing.
            usual_s = next(self.cost.estimates(num_tokens, 0), 0.0)
            limit_s = _INTERRUPTED * max(usual_s, plain_s)
            taken_s = min(seconds, limit_s) + min(drafting_s, limit_s)
            self.debt.owe(taken_s, plain_s, num_plain, num_accepted)
        self._num_since_draft = 0 if num_draft_tokens else self._num_since_draft + 1
        self._since_draft_s = 0.0 if num_draft_tokens else self._since_draft_s + seconds
        if num_draft_tokens:
            self._num_since_none += 1
        elif is_settled:
            self._num_since_none = 0
            self._num_plain_probes = max(self._num_plain_probes - 1, 0)

    def observe_drafting(self, num_rounds: int, seconds: float) -> None:
        """Drafting up to `num_rounds` tokens for each request took `seconds`. After steps without
        draft tokens a draft model has more to compute than it will have next time."""
        if self._num_since_draft == 0:
            self.rounds.observe(num_rounds, seconds)

    def observe_acceptance(self, request_id: int, num_proposed: int, num_accepted: int) -> None:
        self.overall.observe(num_proposed, num_accepted)
        self._requests.setdefault(request_id, Acceptance()).observe(num_proposed, num_accepted)

    def forget(self, request_id: int) -> None:
        self._requests.pop(request_id, None)
        self.evenness.forget(request_id)


def best_counts(
    rates: Sequence[float],
    limits: Sequence[int],
    num_tokens: int,
    cost: MeasuredStepCost,
    rounds_s: Sequence[float],
    *,
    worth: float = 1.0,
    min_gain: float = _MIN_GAIN,
) -> list[int]:
    """The K_i of the highest tokens per second (see the top of this file); `num_tokens` is the step
    without draft tokens, `rounds_s[k - 1]` is D(k), all 0 where there are none, `worth` is s."""
    counts = [0] * len(rates)
    plain_s = next(cost.estimates(num_tokens, 0), 0.0)
    if not plain_s:
        return counts
    best, best_order = len(rates) / plain_s * min_gain, list[int]()
    # A round of drafting for one request is free for the others: then all first draft tokens come
    # before all second ones.
    for by_rounds in (False, True) if any(rounds_s) and len(rates) > 1 else (False,):
        num_gained, num_rounds, num_best = float(len(rates)), 0, 0
        order: list[int] = []
        steps_s = islice(cost.estimates(num_tokens, sum(limits)), 1, None)
        for step_s, (probability, k, i) in zip(
            steps_s, _candidates(rates, limits, by_rounds), strict=False
        ):
            if len(order) - num_best - by_rounds * len(rates) > _LOOKAHEAD:
                break
            order.append(i)
            num_gained += worth * probability
            num_rounds = max(num_rounds, k)
            drafting_s = rounds_s[num_rounds - 1] if rounds_s else 0.0
            tokens_per_s = num_gained / (step_s + drafting_s)
            if tokens_per_s > best:
                best, num_best, best_order = tokens_per_s, len(order), order
        if best_order is order:
            best_order = order[:num_best]
    for i in best_order:
        counts[i] += 1
    return counts


def _candidates(
    rates: Sequence[float], limits: Sequence[int], by_rounds: bool
) -> Iterator[tuple[float, int, int]]:
    """(probability, place in the draft, request): the most probable draft token first, of equal
    ones the earlier place; or place by place."""
    heap = [(0, -rate, 1, i) for i, rate in enumerate(rates) if limits[i]]
    heapify(heap)
    while heap:
        _, minus_probability, k, i = heap[0]
        if -minus_probability < _MIN_PROBABILITY:
            if not by_rounds:
                return
            heappop(heap)
            continue
        yield -minus_probability, k, i
        if k < limits[i]:
            turn = k if by_rounds else 0
            heapreplace(heap, (turn, minus_probability * rates[i], k + 1, i))
        else:
            heappop(heap)
