"""Chooses how many draft tokens to request: as many as raise the measured tokens per second.

A step of n tokens takes T(n). Where memory bandwidth is the limit, T hardly grows with the first
tokens, because the weights are read once for all of them (the flat part of the roofline). Where
arithmetic is the limit, T grows in proportion. Request i's draft token is accepted with probability
a_i if all before it were. K_i draft tokens therefore yield g_i = a_i + a_i^2 + ... + a_i^K_i more
tokens:

    tokens per second = (N + s sum g_i) / (T(n + sum K_i) + D(max K_i))

N requests get a token in any case, and D(k) is the time to draft k tokens for all. Draft tokens are
added one by one, either by probability or all first ones before all second ones; the best rate
wins. Zero draft tokens win where that is best: in a large batch, with poor drafts, or with an
expensive draft model.

s is 1 while requests wait for a place. Otherwise a request that ends early only leaves a smaller
batch, whose steps may be no shorter, and the batch ends with the slowest request. So s = e + (1 -
e) m. The share e of the gain benefits all requests (evenness.py). The rest counts by m, the saving
from one token less in a step relative to an average token.

T, D and a_i are measured while the engine runs (measured_step_cost.py). These estimates miss some
costs: a draft model must catch up with tokens it did not draft, and other programs may slow the
machine. The real cost of drafting is therefore recorded too (debt.py), and drafting stops where it
loses.
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

# A choice (draft tokens or none) that was not made for this many steps is tried a few times to
# measure it again. If it did not pay, the next try comes after twice as many steps, up to the last
# number. With several requests, tries are rarer because each step tells more.
PROBE_STEPS = 128
MAX_PROBE_STEPS = 1024
_NUM_PROBES = 4
_MIN_PROBES = 2
# The number of requests in a try. With a whole batch, a draft model would have much to catch up
# with.
_NUM_PROBED = 4
# A step without draft tokens is slower for this long after drafting, which has displaced the
# model's data in the processor's caches (docs/log.md). Such steps are not measured.
_SETTLING_S = 0.002
# A choice is kept for this many steps of the same requests, because choosing takes time too.
_KEEP_STEPS = 4
# A rest: the number of steps without any proposing or measuring once no draft token pays. It is
# longer if fruitless proposing would exceed a share of the time. With several requests that share
# is smaller, since one repetitive request helps the others little.
_REST_STEPS = 16
_MAX_REST_STEPS = 128
_SHARE_IN_VAIN = 0.0025
_SHARE_IN_VAIN_ALONE = 0.005
# How many of a rest's last steps are measured as steps without draft tokens.
_NUM_OF_REST = 3
# How many draft tokens beyond the best number the search tries: within a kernel's tile, the first
# token costs as much as the last.
_LOOKAHEAD = 16
# A step or a proposer call that takes this many times the usual was interrupted.
_INTERRUPTED = 1.25
# Draft tokens less probable than this are not considered.
_MIN_PROBABILITY = 0.02
# Measured times are inexact: drafting must promise this gain to begin, and to go on. A draft model
# that pauses must catch up.
_MIN_GAIN = 1.03
_MIN_GAIN_ON = 1.01
# The prior acceptance rate, and how many draft tokens it counts for.
_FIRST_RATE = 0.7
_FIRST_WEIGHT = 8.0
_PRIOR_WEIGHT = 4.0
# The share of a request's history that is kept when drafting does not pay for it but does for
# others, and when it pays for none and a rest follows.
_KEPT_AMONG_OTHERS = 0.9
_KEPT_IN_REST = 0.5


@dataclass(kw_only=True)
class Acceptance:
    """Estimates how often draft tokens are accepted. Old counts fade, so that the estimate follows
    the text."""

    fading: float = 0.95
    accepted: float = 0.0
    tested: float = 0.0

    def observe(self, num_proposed: int, num_accepted: int) -> None:
        """Records a draft. Tokens after a rejected one were not tested."""
        self.accepted = self.fading * self.accepted + num_accepted
        self.tested = self.fading * self.tested + min(num_accepted + 1, num_proposed)

    def fade(self, share: float) -> None:
        """Keeps only this share of the counts, so that the rate moves towards the prior."""
        self.accepted *= share
        self.tested *= share

    def rate(self, prior: float, weight: float) -> float:
        """Returns the accepted share of tested draft tokens, with `weight` draft tokens at the rate
        `prior` added."""
        return (self.accepted + prior * weight) / (self.tested + weight)


_UNTESTED = Acceptance()


@dataclass(kw_only=True)
class Adapter:
    """Chooses K for each request of a step."""

    cost: MeasuredStepCost = field(default_factory=MeasuredStepCost)
    rounds: RoundCost = field(default_factory=RoundCost)
    debt: Debt = field(default_factory=Debt)
    # Over all requests; it fades slowly and is the prior of a new request.
    overall: Acceptance = field(default_factory=lambda: Acceptance(fading=0.99))
    evenness: Evenness = field(default_factory=Evenness)
    _requests: dict[int, Acceptance] = field(default_factory=dict)
    _chosen: dict[int, int] = field(default_factory=dict)
    # The number of tokens of the step that was chosen for, and the steps since then.
    _num_tokens: int = 0
    _age: int = 0
    _num_since_draft: int = 0
    _num_since_none: int = 0
    _num_probes: int = 0
    _is_probing: bool = False
    _num_plain_probes: int = 0
    # The length of the coming rest.
    _num_rest_steps: int = 0
    _since_draft_s: float = inf
    _probe_steps: int = PROBE_STEPS
    _plain_probe_steps: int = PROBE_STEPS

    def take_rest(self) -> int:
        """Returns how many of the next steps need no choice. Report what they took before the next
        choice. Call this after every other step."""
        num_steps, self._num_rest_steps = self._num_rest_steps, 0
        return num_steps

    def observe_rest(self, steps: Sequence[tuple[int, float]]) -> None:
        """Records the tokens and seconds of the steps of a rest."""
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
        """Returns K by request id, at most its limit; a missing id means 0. `num_tokens` is the
        step without draft tokens; `is_queued` says whether requests wait for a place."""
        if not any(limits.values()):  # prompts and last tokens say nothing about gains
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
            # A first try of a new step size is not kept.
            is_known = self.cost.is_known(num_tokens + sum(self._chosen.values()))
            self._num_tokens, self._age = num_tokens, 0 if is_known else _KEEP_STEPS
        return {one: min(self._chosen[one], limit) for one, limit in limits.items()}

    def trim(
        self, found: dict[int, int], num_tokens: int, *, is_queued: bool = False
    ) -> dict[int, int]:
        """Returns how many of each request's drafts the step should check: all of them unless some
        are missing. The time to draft them is already spent."""
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
        """Records a step of `num_tokens` tokens in `seconds`. Of these, `num_draft_tokens` were
        draft tokens and `num_accepted` of those were accepted. Drafting took `drafting_s` before
        it."""
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
            # An interrupted step is not measured.
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
        """Records that drafting up to `num_rounds` tokens for each request took `seconds`. After
        steps without draft tokens, a draft model computes more than it will the next time."""
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
    """Returns the K_i with the most tokens per second (see the top of this file). `num_tokens` is
    the step without draft tokens. `rounds_s[k - 1]` is D(k), all 0 for a proposer without rounds;
    `worth` is s."""
    counts = [0] * len(rates)
    plain_s = next(cost.estimates(num_tokens, 0), 0.0)
    if not plain_s:
        return counts
    best, best_order = len(rates) / plain_s * min_gain, list[int]()
    # Once a round is drafted for one request, it is free for the others, so also try all first
    # draft tokens before all second ones.
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
    """Yields (probability, place in the draft, request): the most probable draft token first, ties
    by the earlier place; or, with `by_rounds`, place by place."""
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
