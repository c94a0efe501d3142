"""Ladders: what each part of a model loses in one format after another, and what a step reads.

A part (a role in all layers, or the output layer) is rounded to nearest alone, in three formats,
and the model is measured through the executor that serves: KL divergence to the original, inputs
rounded as they will be. Between these formats the loss follows the squared distance of neighbouring
codes, which falls by four with each bit:

    loss(b bits, groups g) = loss(int8) + (loss(int4, g) - loss(int8)) 4^(4 - b)

Losses are taken to add up over parts, as in optimize/mixed_precision.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paredown.compress.group_sizes import ANY_GROUPS
from paredown.compress.methods import TRANSFORMS
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.method import Quantizer
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import EMBEDDING, OUTPUT, QuantizeStep, Recipe, TransformStep
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.model_parts import OUTPUT_PART, Part, find_parts
from paredown.spec.model import ModelSpec
from paredown.spec.weight import KERNEL_COLUMNS, WeightSpec, bits_per_weight

# How codes are found, in the order of what it costs.
METHODS = ("rtn", "gptq", "awq-gptq")
_WIDTHS = (6, 5, 4, 3)
_PROBED_BITS = 4
WIDEST = FORMATS["int8"]
# Partial sums of a frontier that are carried on.
_MOST_STEPS = 4000


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A part in a format; None leaves its floats. `loss` in nats per token."""

    spec: WeightSpec | None
    loss: float
    read_bytes: float


@dataclass(frozen=True, kw_only=True)
class Ladder:
    part: Part
    rungs: tuple[Rung, ...]


@dataclass(frozen=True, kw_only=True)
class Mix:
    """A rung for each part: `loss` and `read_bytes` are the sums."""

    loss: float
    read_bytes: float
    rungs: tuple[tuple[Part, Rung], ...]


def search_parts(spec: ModelSpec) -> list[Part]:
    """The parts that have a format each."""
    return [*find_parts(spec, "role"), OUTPUT_PART]


def probed_specs(part: Part, spec: ModelSpec) -> list[WeightSpec]:
    """The formats in which a part is measured: int8, and int4 in groups of each size."""
    if part is OUTPUT_PART:
        return [WIDEST]
    return [WIDEST, *(_format(_PROBED_BITS, size) for size in _group_sizes(part, spec))]


def make_ladder(
    part: Part, spec: ModelSpec, losses: Sequence[float | None], float_bits: int
) -> Ladder:
    """The rungs of a part whose `losses` in its probed formats were measured; None for a format
    that it cannot have."""
    weights = part.num_weights(spec)
    columns = part.shapes(spec)[0][1]
    rungs = [Rung(spec=None, loss=0.0, read_bytes=weights * float_bits / 8)]

    def add(own: WeightSpec, loss: float) -> None:
        read = weights * bits_per_weight(own, columns) / 8
        rungs.append(Rung(spec=own, loss=max(loss, 0.0), read_bytes=read))

    widest, *narrow = losses
    if widest is not None:
        add(WIDEST, widest)
    sizes = [] if part is OUTPUT_PART else _group_sizes(part, spec)
    for size, loss in zip(sizes, narrow, strict=True):
        if loss is None:
            continue
        base = min(widest or 0.0, loss)
        for bits in _WIDTHS:
            add(_format(bits, size), base + (loss - base) * 4.0 ** (_PROBED_BITS - bits))
    return Ladder(part=part, rungs=tuple(rungs))


def frontier(ladders: Sequence[Ladder]) -> list[Mix]:
    """All mixes that no other beats in both sums, the smallest first."""
    mixes = [Mix(loss=0.0, read_bytes=0.0, rungs=())]
    for ladder in ladders:
        grown = [
            Mix(
                loss=mix.loss + rung.loss,
                read_bytes=mix.read_bytes + rung.read_bytes,
                rungs=(*mix.rungs, (ladder.part, rung)),
            )
            for mix in mixes
            for rung in ladder.rungs
        ]
        mixes = _undominated(grown)
    return mixes


def smallest_within(mixes: Sequence[Mix], max_loss: float) -> Mix:
    """The smallest mix with at most that loss; that with the least where none has."""
    return next((mix for mix in mixes if mix.loss <= max_loss), mixes[-1])


def best_within(mixes: Sequence[Mix], max_bytes: float) -> Mix:
    """The mix with the least loss that reads at most so much; the smallest where none does."""
    fitting = [mix for mix in mixes if mix.read_bytes <= max_bytes]
    return fitting[-1] if fitting else mixes[0]


def mix_recipe(mix: Mix, source: Checkpoint, method: str) -> Recipe:
    """The mix as a recipe by that method; the output layer is rounded to nearest, and a table of
    embeddings that is tied to it with it."""
    *names, last = method.split("-")
    transforms = [TRANSFORMS[name]() for name in (*names, last) if name in TRANSFORMS]
    quantizer: Quantizer = GPTQ() if last == "gptq" else RTN()
    targets: dict[WeightSpec, list[str]] = {}
    tail: list[QuantizeStep] = []
    for part, rung in mix.rungs:
        if rung.spec is None:
            continue
        if part is OUTPUT_PART:
            tables = (OUTPUT, EMBEDDING) if source.spec.output.is_tied else (OUTPUT,)
            tail = [QuantizeStep(quantizer=RTN(), spec=rung.spec, targets=(one,)) for one in tables]
        else:
            own = [source.linear_name(role, layer) for layer, role in _placed(part)]
            targets.setdefault(rung.spec, []).extend(own)
    steps = [
        QuantizeStep(quantizer=quantizer, spec=spec, targets=tuple(modules))
        for spec, modules in targets.items()
    ]
    before = [TransformStep(transform=transform) for transform in transforms] if steps else []
    return Recipe(name=_name(mix, method), steps=(*before, *steps, *tail))


def mix_words(mix: Mix) -> str:
    """'q k v int8, o int6-g64, output layer int8', for notes."""
    return ", ".join(
        f"{part.name} {'in floats' if rung.spec is None else rung.spec.name}"
        for part, rung in mix.rungs
    )


def _name(mix: Mix, method: str) -> str:
    """'gptq-mix-6.2bit': the bits that a step reads of a weight, on average."""
    num_weights = sum(
        rung.read_bytes * 8 / _bits_of(rung) for _, rung in mix.rungs if rung.spec is not None
    )
    read = sum(rung.read_bytes for _, rung in mix.rungs if rung.spec is not None)
    return f"{method}-mix-{8 * read / num_weights if num_weights else 16:.2f}bit"


def _bits_of(rung: Rung) -> float:
    """Bits of a weight's code and its share of the scales, for groups that divide the columns."""
    assert rung.spec is not None
    return bits_per_weight(rung.spec, rung.spec.group_size or 1 << 20)


def _placed(part: Part) -> list[tuple[int, str]]:
    return [(layer, role) for layer, role in part.modules if layer is not None]


def _group_sizes(part: Part, spec: ModelSpec) -> list[int]:
    """The largest groups that divide the columns of all the part's modules, and the smallest."""
    columns = math.gcd(*(shape[1] for shape in part.shapes(spec)))
    sizes = [size for size in ANY_GROUPS if columns % size == 0]
    return list(dict.fromkeys([sizes[0], KERNEL_COLUMNS])) if sizes else []


def _format(bits: int, group_size: int) -> WeightSpec:
    return FORMATS[f"int{bits}-g{group_size}"]


def _undominated(mixes: Sequence[Mix]) -> list[Mix]:
    ordered = sorted(mixes, key=lambda mix: (mix.read_bytes, mix.loss))
    kept: list[Mix] = []
    for mix in ordered:
        if not kept or mix.loss < kept[-1].loss:
            kept.append(mix)
    step = -(-len(kept) // _MOST_STEPS)
    return kept if step == 1 else [*kept[:-1:step], kept[-1]]
