"""Ladders: the loss of each part of a model in one format after another, and the bytes that a step
reads.

A part (a role in all layers, or the output layer) is rounded to nearest alone, in a few formats.
The model is then measured through the executor that serves, as KL divergence to the original. With
inputs of two int8 codes (int16_group) this is the loss of the weights alone. Between the formats
the loss follows the squared distance of neighbouring codes, which falls by a factor of four with
each bit:

    weights(b bits, groups g) = weights(int8) + (weights(int4, g) - weights(int8)) 4^(4 - b)

With the group size it follows the square of the largest of that many normal numbers.

With inputs of one int8 code, int8 weights lose more by the cost of the inputs. Groups of weights,
whose inputs have powers of two as scales, lose a multiple of that:

    loss(b, g) = weights(b, g) + f(g) (loss(int8) - weights(int8))

Losses are assumed to add up over parts, as in optimize/mixed_precision.py. The cost of a rung is
the bytes that a step reads, increased for inputs of two codes by their longer time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from paredown.compress.activations import kernel_group_size
from paredown.compress.group_sizes import ANY_GROUPS
from paredown.compress.methods import TRANSFORMS
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.method import Quantizer
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.steps import EMBEDDING, OUTPUT, QuantizeStep, TransformStep
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.model_parts import OUTPUT_PART, Part, find_parts
from paredown.spec.model import ModelSpec
from paredown.spec.weight import (
    KERNEL_COLUMNS,
    ActivationDType,
    WeightSpec,
    bits_per_weight,
)

# The quantities that bound mixes besides their loss.
Axis = Literal["cost", "read_bytes"]
# The methods that find codes, from cheap to expensive.
METHODS = ("rtn", "gptq", "awq-gptq")
_WIDTHS = (6, 5, 4, 3)
_PROBED_BITS = 4
WIDEST = FORMATS["int8"]
# Inputs that lose almost nothing.
FINE: ActivationDType = "int16_group"
# The squared error of a group's inputs when its scale is the next power of two, relative to the
# least scale. It is the mean of 4^u for u from 0 to 1, and codes end at 120 instead of 127.
_POWER_SCALES = 3 / math.log(4) * (127 / 120) ** 2
# The most partial sums of a frontier that are kept.
_MOST_STEPS = 4000


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A part in a format; None leaves it in floats. `loss` is in nats per token, `cost` in
    bytes."""

    spec: WeightSpec | None
    loss: float
    read_bytes: float
    cost: float


@dataclass(frozen=True, kw_only=True)
class Ladder:
    part: Part
    rungs: tuple[Rung, ...]


@dataclass(frozen=True, kw_only=True)
class Mix:
    """A rung for each part; `loss`, `read_bytes` and `cost` are the sums."""

    loss: float
    read_bytes: float
    cost: float
    rungs: tuple[tuple[Part, Rung], ...]

    def along(self, axis: Axis) -> float:
        return self.cost if axis == "cost" else self.read_bytes


def search_parts(spec: ModelSpec) -> list[Part]:
    """Returns the parts that have a format each."""
    return [*find_parts(spec, "role"), OUTPUT_PART]


def probed_specs(part: Part, spec: ModelSpec) -> list[WeightSpec]:
    """Returns the formats in which a part is measured: int8 with inputs of one code and of two,
    and int4 in the largest groups."""
    largest = _group_sizes(part, spec)[:1]
    return [WIDEST, _fine(WIDEST), *(_fine(_format(_PROBED_BITS, size)) for size in largest)]


def make_ladder(
    part: Part,
    spec: ModelSpec,
    losses: Mapping[WeightSpec, float | None],
    *,
    float_bits: int,
    fine_cost: float,
) -> Ladder:
    """Returns the rungs of a part from its measured `losses` in the probed formats (None: the part
    cannot have that format). `fine_cost` is the time of a step with inputs of two codes over that
    with one."""
    weights = part.num_weights(spec)
    columns = part.shapes(spec)[0][1]
    read = weights * float_bits / 8
    rungs = [Rung(spec=None, loss=0.0, read_bytes=read, cost=read)]

    def add(own: WeightSpec, loss: float) -> None:
        read = weights * bits_per_weight(own, columns) / 8
        cost = read * (fine_cost if own.activations == FINE else 1.0)
        rungs.append(Rung(spec=own, loss=max(loss, 0.0), read_bytes=read, cost=cost))

    widest, fine = losses[WIDEST], losses[_fine(WIDEST)]
    of_inputs = max(widest - fine, 0.0) if widest is not None and fine is not None else 0.0
    for own, loss in ((WIDEST, widest), (_fine(WIDEST), fine)):
        if loss is not None:
            add(own, loss)
    for own in probed_specs(part, spec)[2:]:
        loss = losses[own]
        if loss is None or own.group_size is None:
            continue
        base = min(fine or 0.0, loss)
        for size, bits in product(_group_sizes(part, spec), _WIDTHS):
            of_codes = (loss - base) * _largest_of(size) / _largest_of(own.group_size)
            of_weights = base + of_codes * 4.0 ** (_PROBED_BITS - bits)
            add(_fine(_format(bits, size)), of_weights)
            add(_format(bits, size), of_weights + of_inputs * _group_factor(size, columns))
    return Ladder(part=part, rungs=tuple(rungs))


def frontier(ladders: Sequence[Ladder], axis: Axis = "cost") -> list[Mix]:
    """Returns all mixes that no other beats both in loss and along the axis, the cheapest first."""
    mixes = [Mix(loss=0.0, read_bytes=0.0, cost=0.0, rungs=())]
    for ladder in ladders:
        grown = [
            Mix(
                loss=mix.loss + rung.loss,
                read_bytes=mix.read_bytes + rung.read_bytes,
                cost=mix.cost + rung.cost,
                rungs=(*mix.rungs, (ladder.part, rung)),
            )
            for mix in mixes
            for rung in ladder.rungs
        ]
        mixes = _undominated(grown, axis)
    return mixes


def cheapest_within(mixes: Sequence[Mix], max_loss: float) -> Mix:
    """Returns the cheapest mix with at most that loss, or the one with the least loss."""
    return next((mix for mix in mixes if mix.loss <= max_loss), mixes[-1])


def best_within(mixes: Sequence[Mix], limit: float, axis: Axis = "cost") -> Mix:
    """Returns the mix with the least loss within a limit on the axis, or the cheapest one."""
    fitting = [mix for mix in mixes if mix.along(axis) <= limit]
    return fitting[-1] if fitting else mixes[0]


def mix_recipe(mix: Mix, source: Checkpoint, method: str) -> Recipe:
    """Returns the mix as a recipe of that method. An embedding tied to the output layer is rounded
    to nearest with it, to int8, and so is an output layer at eight bits."""
    *names, last = method.split("-")
    transforms = [TRANSFORMS[name]() for name in (*names, last) if name in TRANSFORMS]
    quantizer: Quantizer = GPTQ() if last == "gptq" else RTN()
    targets: dict[WeightSpec, list[str]] = {}
    tail: list[QuantizeStep] = []
    for part, rung in mix.rungs:
        if rung.spec is None:
            continue
        if part is OUTPUT_PART:
            tail = _table_steps(rung.spec, quantizer, is_tied=source.spec.is_tied)
        else:
            own = [source.linear_name(role, layer) for layer, role in _placed(part)]
            targets.setdefault(rung.spec, []).extend(own)
    steps = [
        QuantizeStep(quantizer=quantizer, spec=spec, targets=tuple(modules))
        for spec, modules in targets.items()
    ]
    before = [TransformStep(transform=transform) for transform in transforms] if steps else []
    return Recipe(name=_name(mix, method), steps=(*before, *steps, *tail))


def _table_steps(spec: WeightSpec, quantizer: Quantizer, *, is_tied: bool) -> list[QuantizeStep]:
    own = RTN() if spec.bits == WIDEST.bits else quantizer
    output = QuantizeStep(quantizer=own, spec=spec, targets=(OUTPUT,))
    table = QuantizeStep(quantizer=RTN(), spec=WIDEST, targets=(EMBEDDING,))
    return [output, table] if is_tied else [output]


def mix_words(mix: Mix) -> str:
    """Describes a mix for notes: 'q k v int8, o int6-g64, output layer int8'."""
    return ", ".join(
        f"{part.name} {'in floats' if rung.spec is None else rung.spec.name}"
        for part, rung in mix.rungs
    )


def _name(mix: Mix, method: str) -> str:
    """Returns 'gptq-mix-6.2bit', with the average bits that a step reads per weight."""
    num_weights = sum(
        rung.read_bytes * 8 / _bits_of(rung) for _, rung in mix.rungs if rung.spec is not None
    )
    read = sum(rung.read_bytes for _, rung in mix.rungs if rung.spec is not None)
    return f"{method}-mix-{8 * read / num_weights if num_weights else 16:.2f}bit"


def _bits_of(rung: Rung) -> float:
    """Returns the bits of a weight's code and its share of the scales, for groups that divide the
    columns."""
    assert rung.spec is not None
    return bits_per_weight(rung.spec, rung.spec.group_size or 1 << 20)


def _placed(part: Part) -> list[tuple[int, str]]:
    return [(layer, role) for layer, role in part.modules if layer is not None]


def _group_sizes(part: Part, spec: ModelSpec) -> list[int]:
    """Returns the largest and the smallest group size that divides the columns of all the part's
    modules."""
    columns = math.gcd(*(shape[1] for shape in part.shapes(spec)))
    sizes = [size for size in ANY_GROUPS if columns % size == 0]
    return list(dict.fromkeys([sizes[0], KERNEL_COLUMNS])) if sizes else []


def _fine(spec: WeightSpec) -> WeightSpec:
    return replace(spec, activations=FINE)


def _group_factor(size: int, num_columns: int) -> float:
    """Returns the squared error of int8 inputs in groups over that in rows, whose scales are not
    powers of two."""
    return _POWER_SCALES * _largest_of(size) / _largest_of(kernel_group_size(num_columns, None))


def _largest_of(count: int) -> float:
    """Returns about the square of the largest of `count` normal numbers, 2 ln n. The error of a
    group's codes is proportional to it."""
    return 2 * math.log(count)


def _format(bits: int, group_size: int) -> WeightSpec:
    return FORMATS[f"int{bits}-g{group_size}"]


def _undominated(mixes: Sequence[Mix], axis: Axis) -> list[Mix]:
    ordered = sorted(mixes, key=lambda mix: (mix.along(axis), mix.loss))
    kept: list[Mix] = []
    for mix in ordered:
        if not kept or mix.loss < kept[-1].loss:
            kept.append(mix)
    step = -(-len(kept) // _MOST_STEPS)
    return kept if step == 1 else [*kept[:-1:step], kept[-1]]
