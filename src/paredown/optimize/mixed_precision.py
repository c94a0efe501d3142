"""Mixed precision: a width for each part of a model under a budget
(docs/methods/mixed_precision.md).

The loss of a part in a format is measured as the KL divergence of the model with only that part
rounded. Losses are assumed to add up, so that the best choice is a multiple-choice knapsack:

    minimize sum_p loss[p][c_p]   subject to   sum_p cost[p][c_p] <= budget

It is solved exactly: from part to part the solver keeps every sum of costs that no cheaper one
beats. A part is the modules that must share a format (q, k, v of a layer; gate, up). Costs are
bits of codes, for an average, or stored bytes with scales and zero points.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import Tensor

from paredown.compress.quantize.method import LayerTarget, Quantizer
from paredown.compress.recipe import Recipe
from paredown.compress.require_floats import require_floats
from paredown.compress.steps import OUTPUT, QuantizeStep
from paredown.errors import ConfigError
from paredown.evaluate.quality.simulated import Values, Variant, measure_variants
from paredown.evaluate.texts.text import EvalText
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.optimize.model_parts import OUTPUT_PART, Part, find_parts
from paredown.optimize.sensitivity import (
    own_weight,
    quantized_weight,
    scale_dtype_of,
    weight_name,
)
from paredown.progress import OnCount
from paredown.spec.weight import ScaleDType, WeightSpec, bits_per_weight

WIDTHS = (2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A part in a format. `loss` is the KL divergence that it causes alone, in nats per token.
    `code_bits` counts only codes; `stored_bytes` also counts scales and zero points."""

    spec: WeightSpec
    loss: float
    code_bits: int
    stored_bytes: int


@dataclass(frozen=True, kw_only=True)
class PartChoices:
    part: Part
    choices: tuple[Choice, ...]


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """A choice for each part, in order. `predicted_loss` is the sum of their losses."""

    parts: tuple[Part, ...]
    chosen: tuple[Choice, ...]

    @property
    def predicted_loss(self) -> float:
        return sum(choice.loss for choice in self.chosen)

    @property
    def code_bits(self) -> int:
        return sum(choice.code_bits for choice in self.chosen)

    @property
    def average_bits(self) -> float:
        """The average bits of codes per weight."""
        num_weights = sum(choice.code_bits // choice.spec.bits for choice in self.chosen)
        return self.code_bits / num_weights

    @property
    def stored_bytes(self) -> int:
        return sum(choice.stored_bytes for choice in self.chosen)

    def by_module(self) -> dict[tuple[int | None, str], WeightSpec]:
        """Returns the format of each (layer, role)."""
        return {
            pair: choice.spec
            for part, choice in zip(self.parts, self.chosen, strict=True)
            for pair in part.modules
        }

    def recipe(self, checkpoint: Checkpoint, quantizer: Quantizer, name: str) -> Recipe:
        """Returns a recipe with a step for each format, which names its modules in the
        checkpoint."""
        targets: dict[WeightSpec, list[str]] = {}
        for (layer, role), spec in self.by_module().items():
            target = OUTPUT if layer is None else checkpoint.linear_name(role, layer)
            targets.setdefault(spec, []).append(target)
        steps = tuple(
            QuantizeStep(quantizer=quantizer, spec=spec, targets=tuple(names))
            for spec, names in targets.items()
        )
        return Recipe(name=name, steps=steps)


def formats_of_widths(
    group_size: int, widths: Sequence[int] = WIDTHS, *, symmetric: bool = True
) -> tuple[WeightSpec, ...]:
    """Returns the integer formats with these widths and that group size. Raises ConfigError for a
    size that no format has."""
    ending = f"-g{group_size}" + ("" if symmetric else "-asym")
    names = [f"int{bits}{ending}" for bits in widths]
    if names[0] not in FORMATS:
        raise ConfigError(
            "no format has such groups", seen=group_size, remedy="Use groups of 32, 64 or 128."
        )
    return tuple(FORMATS[name] for name in names)


def measure_choices(
    checkpoint: Checkpoint,
    text: EvalText,
    specs: Sequence[WeightSpec],
    quantizer: Quantizer,
    on_progress: OnCount | None = None,
    *,
    with_output: bool = False,
) -> list[PartChoices]:
    """Measures the loss of each fused part in each format, and with `with_output` of the output
    layer.

    The decoder runs the text once for each of them. Weights are rounded on demand, one part at a
    time.
    """
    require_floats(checkpoint)
    decoder = Decoder.from_checkpoint(checkpoint)
    scale_dtype = scale_dtype_of(checkpoint)
    parts = find_parts(decoder.spec, "fused") + ([OUTPUT_PART] if with_output else [])
    variants = [
        Variant(weights=rounded_when_needed(decoder, part, quantizer, spec, scale_dtype))
        for part in parts
        for spec in specs
    ]
    qualities, plain = measure_variants(decoder, variants, text, on_progress=on_progress)
    plain.require_numbers(str(checkpoint.path))
    found = []
    for at, part in enumerate(parts):
        losses = []
        for quality in qualities[at * len(specs) : (at + 1) * len(specs)]:
            quality.require_numbers(f"{checkpoint.path}, {part.name} quantized")
            assert quality.kl_divergence is not None
            losses.append(quality.kl_divergence)
        choices = tuple(
            make_choice(checkpoint, part, spec, loss, scale_dtype)
            for spec, loss in zip(specs, losses, strict=True)
        )
        found.append(PartChoices(part=part, choices=choices))
    return found


def rounded_when_needed(
    decoder: Decoder, part: Part, quantizer: Quantizer, spec: WeightSpec, scale_dtype: ScaleDType
) -> dict[str, Values]:
    """Returns the part's weights for a `Variant`; each run rounds them anew from the decoder's."""

    def values(name: str, weight_OI: Tensor) -> Tensor:
        return quantized_weight(weight_OI, name, quantizer, target)

    target = LayerTarget(spec=spec, scale_dtype=scale_dtype)
    return {
        name: partial(values, name, own_weight(decoder, name))
        for name in (weight_name(*module) for module in part.modules)
    }


def make_choice(
    checkpoint: Checkpoint, part: Part, spec: WeightSpec, loss: float, scale_dtype: ScaleDType
) -> Choice:
    """Builds the choice with its storage cost."""
    stored = 0
    for rows, columns in part.shapes(checkpoint.spec):
        stored += math.ceil(rows * columns * bits_per_weight(spec, columns, scale_dtype) / 8)
    code_bits = part.num_weights(checkpoint.spec) * spec.bits
    return Choice(spec=spec, loss=loss, code_bits=code_bits, stored_bytes=stored)


def assign_average_bits(found: Sequence[PartChoices], average_bits: float) -> Assignment:
    """Returns the assignment with the least loss and at most that many bits of codes per weight of
    the linear layers. Raises ConfigError if nothing is that small."""
    num_weights = sum(map(_num_weights, found))

    def words(code_bits: int) -> str:
        # Rounded up, so that asking for this number works.
        return f"{math.ceil(100 * code_bits / num_weights) / 100:.2f} bits on average"

    costs = [[choice.code_bits for choice in one.choices] for one in found]
    return _assign(found, costs, math.floor(average_bits * num_weights), words)


def assign_bytes(found: Sequence[PartChoices], max_bytes: int) -> Assignment:
    """Returns the assignment with the least loss and at most that many bytes for the linear
    layers, including scales and zero points. Raises ConfigError if nothing is that small."""
    costs = [[choice.stored_bytes for choice in one.choices] for one in found]
    return _assign(found, costs, max_bytes, lambda num_bytes: f"{num_bytes:,} bytes")


def reverse_assignment(found: Sequence[PartChoices], average_bits: float) -> Assignment:
    """Returns what `assign_average_bits` would choose if the parts' ranking were reversed: the
    most sensitive one, by its loss per weight over all formats, counts as the least sensitive.
    Compared with the true assignment, it shows what the measurement is worth."""
    ranked = sorted(range(len(found)), key=lambda at: _sensitivity(found[at]))
    mirror = dict(zip(ranked, reversed(ranked), strict=True))
    turned = []
    for at, one in enumerate(found):
        other = found[mirror[at]]
        share = _num_weights(one) / _num_weights(other)
        choices = tuple(
            replace(own, loss=mirrored.loss * share)
            for own, mirrored in zip(one.choices, other.choices, strict=True)
        )
        turned.append(PartChoices(part=one.part, choices=choices))
    chosen = assign_average_bits(turned, average_bits).chosen
    return Assignment(
        parts=tuple(one.part for one in found),
        chosen=tuple(
            next(choice for choice in one.choices if choice.spec == turned_choice.spec)
            for one, turned_choice in zip(found, chosen, strict=True)
        ),
    )


def solve(
    costs: Sequence[Sequence[int]], losses: Sequence[Sequence[float]], budget: int
) -> list[int]:
    """Returns the choice of each part with the least total loss within the budget, and among
    equals the cheapest. The cheapest choices together must fit. The solution is exact: only states
    that cost more than another and lose as much are dropped."""
    # The states by rising cost and falling loss, and for each part what led to its states.
    cost_S, loss_S = np.zeros(1, np.int64), np.zeros(1)
    trail: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]] = []
    least_after = [sum(map(min, costs[at + 1 :])) for at in range(len(costs))]
    for own_costs, own_losses, rest in zip(costs, losses, least_after, strict=True):
        cost_SC = cost_S[:, None] + np.array(own_costs, np.int64)
        loss_SC = loss_S[:, None] + np.array(own_losses)
        fitting = np.flatnonzero(cost_SC + rest <= budget)
        order = fitting[np.lexsort((loss_SC.flat[fitting], cost_SC.flat[fitting]))]
        cost_S, loss_S = cost_SC.flat[order], loss_SC.flat[order]
        least = np.minimum.accumulate(loss_S)
        better = np.concatenate([[True], loss_S[1:] < least[:-1]])[: len(order)]
        trail.append(np.divmod(order[better], len(own_costs)))
        cost_S, loss_S = cost_S[better], loss_S[better]
    assert cost_S.size, "the cheapest choices do not fit the budget"
    chosen, at = [], cost_S.size - 1
    for before, choices in reversed(trail):
        chosen.append(int(choices[at]))
        at = int(before[at])
    return chosen[::-1]


def _assign(
    found: Sequence[PartChoices],
    costs: Sequence[Sequence[int]],
    budget: int,
    words: Callable[[int], str],
) -> Assignment:
    """Assigns under a budget; `words` describes a sum of costs for people."""
    least = sum(map(min, costs))
    if least > budget:
        raise ConfigError(
            "no choice of formats is that small",
            seen=words(budget),
            remedy=f"Ask for at least {words(least)}, or offer narrower formats.",
        )
    losses = [[choice.loss for choice in one.choices] for one in found]
    chosen = solve(costs, losses, budget)
    return Assignment(
        parts=tuple(one.part for one in found),
        chosen=tuple(one.choices[at] for one, at in zip(found, chosen, strict=True)),
    )


def _num_weights(one: PartChoices) -> int:
    return one.choices[0].code_bits // one.choices[0].spec.bits


def _sensitivity(one: PartChoices) -> float:
    return sum(choice.loss for choice in one.choices) / _num_weights(one)
