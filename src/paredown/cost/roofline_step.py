"""RooflineStep: the StepCost of a machine on which our kernels were not measured."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from paredown.cost.efficiency import Efficiency
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import OperationCost, letter_names, load_values
from paredown.cost.operations import operations
from paredown.cost.polynomial import Polynomial
from paredown.cost.roofline import Roofs
from paredown.cost.step_cost import StepLoad
from paredown.spec.model import ModelSpec

# The nonzero coefficients of the constant and of a load's letters, each with its index.
_Coefficients = list[tuple[int, float]]
# The number of occurrences, how many of these are only for rows of logits, and the seconds by both
# roofs.
_Term = tuple[int, int, _Coefficients, _Coefficients]


@dataclass(frozen=True, kw_only=True)
class RooflineStep:
    """Predicts the seconds of a step with each operation at its share of the roofs. With
    `efficiency` None each takes its best time, which no machine beats, and what our core may skip
    does not count."""

    spec: ModelSpec
    formats: ModelFormats
    roofs: Roofs
    efficiency: Efficiency | None
    _others_s: dict[tuple[int, int, int], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def step_s(self, step: StepLoad) -> float:
        """Returns the seconds of a step. A simulator asks for millions of steps, so the part
        without attention, which depends on few numbers, is remembered."""
        load = (1.0, *load_values(step, self.spec))
        attention, others = self._terms
        key = (step.num_tokens, step.num_logits, step.num_encoder_tokens)
        others_s = self._others_s.get(key)
        if others_s is None:
            others_s = self._others_s[key] = self._seconds(others, load, step.asked_share)
        return others_s + self._seconds(attention, load, step.asked_share)

    def _seconds(self, terms: list[_Term], load: tuple[float, ...], asked_share: float) -> float:
        total = 0.0
        for count, num_asked_only, arithmetic, memory in terms:
            arithmetic_s = memory_s = 0.0
            for letter, seconds in arithmetic:
                arithmetic_s += seconds * load[letter]
            for letter, seconds in memory:
                memory_s += seconds * load[letter]
            if self.efficiency is None:
                computed = count - num_asked_only * (1 - asked_share)
                total += computed * max(arithmetic_s, memory_s)
            else:
                total += count * self.efficiency.seconds(arithmetic_s, memory_s)
        return total

    def operation_s(self, cost: OperationCost, load: StepLoad) -> float | None:
        """Returns the seconds of an operation; None where only the roofs are known."""
        if self.efficiency is None:
            return None
        count = cost.operation.count
        arithmetic_s = cost.flops / count / self.roofs.peak(cost.operation.unit)
        memory_s = cost.bytes / count / self.roofs.bandwidth_bytes_per_s
        return count * self.efficiency.seconds(arithmetic_s, memory_s)

    @cached_property
    def _terms(self) -> tuple[list[_Term], list[_Term]]:
        """The terms of attention, and those of the other operations: how often each occurs, and
        its seconds by the two roofs as functions of the load."""
        attention: list[_Term] = []
        others: list[_Term] = []
        letters = letter_names(self.spec)
        for one in operations(self.spec, self.formats):
            peak, bandwidth = self.roofs.peak(one.unit), self.roofs.bandwidth_bytes_per_s
            if one.count:
                arithmetic = _coefficients(one.flops, letters, peak)
                memory = _coefficients(one.bytes, letters, bandwidth)
                terms = attention if one.kind == "attention" else others
                terms.append((one.count, one.num_asked_only, arithmetic, memory))
        return attention, others


def _coefficients(amount: Polynomial, letters: Sequence[str], rate: float) -> _Coefficients:
    """Returns the coefficients in seconds."""
    values = enumerate(amount.coefficients(letters))
    return [(number, value / rate) for number, value in values if value]
