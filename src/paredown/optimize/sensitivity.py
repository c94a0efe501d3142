"""Sensitivity: the cost of quantizing one part of a model (docs/methods/sensitivity.md).

Every part has two figures, both KL divergences to the unchanged model, from predictions on a text:
with only that part quantized, and with everything quantized except it (leave one out). Parts are
layers or modules, whose weights are rounded, or points of the decoder, where activations are
(softmax input, sums of the residual stream, ...).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from torch import Tensor

from paredown.compress.activations import ActivationGrid, round_activations
from paredown.compress.quantize.method import LayerTarget, Quantizer
from paredown.compress.require_floats import require_floats
from paredown.errors import ConfigError, naming
from paredown.evaluate.quality.quality import Quality
from paredown.evaluate.quality.simulated import OUTPUT, Variant, measure_variants
from paredown.evaluate.texts.text import EvalText
from paredown.formats.integer import group_columns
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.points import LAYER_POINTS, MODEL_POINTS
from paredown.optimize.model_parts import OUTPUT_PART, PART_KINDS, Part, PartKind, find_parts
from paredown.progress import OnCount
from paredown.spec.model import ModelSpec
from paredown.spec.weight import ScaleDType, WeightSpec

# The window length of a sensitivity run: short windows cost less and show attention well enough.
WINDOW_TOKENS = 512

# The points in words.
POINT_NAMES = {
    "embedding": "embedding sum",
    "attention_input": "attention input",
    "q": "queries",
    "k": "keys",
    "v": "values",
    "scores": "softmax input",
    "probabilities": "softmax output",
    "o_input": "heads' output",
    "attention_output": "attention output",
    "attention_sum": "sum after attention",
    "mlp_input": "MLP input",
    "down_input": "MLP hidden",
    "mlp_output": "MLP output",
    "mlp_sum": "sum after MLP",
    "output_input": "output layer's input",
    "logits": "logits",
}


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The figures of one part. `alone` is with only it quantized, `all_but` with everything else.
    `num_weights` is 0 for points and for keys and values (kv)."""

    kind: PartKind | Literal["point", "kv"]
    name: str
    num_weights: int
    alone: Quality
    all_but: Quality


@dataclass(frozen=True, kw_only=True)
class SensitivityTable:
    """`everything` is for the model with all parts quantized; `what` names the grid."""

    what: str
    everything: Quality
    rows: tuple[Sensitivity, ...]


@dataclass(frozen=True, kw_only=True)
class SensitivityResult:
    """`activations` is None if points were not asked for, `kv` if keys and values were not
    (optimize/kv_sensitivity.py), `pruned` if pruning was not (optimize/prune_sensitivity.py)."""

    model: str
    protocol: str
    plain: Quality
    weights: SensitivityTable
    activations: SensitivityTable | None
    kv: SensitivityTable | None = None
    pruned: SensitivityTable | None = None
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Returns the result as JSON. JSON has no infinity, so a perplexity too large for a float
        becomes null."""
        return {name: _finite(value) for name, value in asdict(self).items()}


def measure_sensitivity(
    checkpoint: Checkpoint,
    text: EvalText,
    spec: WeightSpec,
    kinds: Sequence[PartKind],
    quantizer: Quantizer,
    grid: ActivationGrid | None = None,
    on_progress: OnCount | None = None,
    *,
    with_output: bool = False,
) -> SensitivityResult:
    """Measures weights in `spec` by `quantizer` (one that needs no calibration), activations on
    `grid`, and with `with_output` the output layer.

    Raises UnsupportedError for a checkpoint that is already compressed or cannot have the format,
    CheckpointError for predictions that are not numbers.
    """
    require_floats(checkpoint)
    decoder = Decoder.from_checkpoint(checkpoint)
    more = [OUTPUT_PART] if with_output else []
    every = [*find_parts(decoder.spec, "module"), *more]
    rounded = quantized_weights(decoder, every, spec, quantizer, scale_dtype_of(checkpoint))
    parts = [part for kind in kinds for part in find_parts(decoder.spec, kind)] + more
    everything = Variant(weights=rounded)
    variants = [everything]
    for part in parts:
        own = part_names(part)
        variants.append(Variant(weights={name: rounded[name] for name in own}))
        others = {name: values for name, values in rounded.items() if name not in own}
        variants.append(Variant(weights=others))
    num_of_weights = len(variants)
    variants += [] if grid is None else point_variants(decoder.spec, grid)
    qualities, plain = measure_variants(decoder, variants, text, on_progress=on_progress)
    plain.require_numbers(str(checkpoint.path))
    for quality in qualities:
        quality.require_numbers(f"{checkpoint.path}, quantized")
    weights = SensitivityTable(
        what=spec.name,
        everything=qualities[0],
        rows=tuple(
            Sensitivity(
                kind=part.kind,
                name=part.name,
                num_weights=part.num_weights(decoder.spec),
                alone=alone,
                all_but=all_but,
            )
            for part, alone, all_but in zip(
                parts, qualities[1:num_of_weights:2], qualities[2:num_of_weights:2], strict=True
            )
        ),
    )
    activations = None if grid is None else _point_table(grid, qualities[num_of_weights:])
    return SensitivityResult(
        model=checkpoint.path.name,
        protocol=text.protocol,
        plain=plain,
        weights=weights,
        activations=activations,
    )


def quantized_weights(
    decoder: Decoder,
    parts: Sequence[Part],
    spec: WeightSpec,
    quantizer: Quantizer,
    scale_dtype: ScaleDType,
) -> dict[str, Tensor]:
    """Returns the values of the parts' linear layers after rounding, by their names in the
    decoder. Raises UnsupportedError, with the module's name, if the groups do not fit."""
    target = LayerTarget(spec=spec, scale_dtype=scale_dtype)
    return {
        name: quantized_weight(own_weight(decoder, name), name, quantizer, target)
        for part in parts
        for name in part_names(part)
    }


def quantized_weight(
    weight_OI: Tensor, name: str, quantizer: Quantizer, target: LayerTarget
) -> Tensor:
    """Returns one linear layer's values after rounding; `name` is for errors."""
    with naming(name):
        group_columns(target.spec, weight_OI.shape[1])
        return quantizer.quantize(weight_OI, target, None).values()


def recovered(row: Sensitivity, table: SensitivityTable) -> float:
    """Returns the KL divergence that leaving the part unquantized removes; noise may make it
    negative."""
    assert table.everything.kl_divergence is not None
    assert row.all_but.kl_divergence is not None
    return table.everything.kl_divergence - row.all_but.kl_divergence


def parse_format(name: str) -> WeightSpec:
    """Returns a quantized format by its name. Raises ConfigError."""
    if name not in FORMATS or not FORMATS[name].is_quantized:
        known = ", ".join(one for one, spec in FORMATS.items() if spec.is_quantized)
        raise ConfigError(
            "there is no such quantized format", seen=name, remedy=f"Known ones: {known}."
        )
    return FORMATS[name]


def parse_kinds(text: str) -> tuple[PartKind, ...]:
    """Parses 'layer,role' into kinds of parts. Raises ConfigError."""
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in PART_KINDS]
    if unknown or not names:
        raise ConfigError(
            "there are no such parts",
            seen=", ".join(unknown) or text,
            remedy=f"Choose of {', '.join(PART_KINDS)}.",
        )
    return tuple(kind for kind in PART_KINDS if kind in names)


def point_variants(spec: ModelSpec, grid: ActivationGrid) -> list[Variant]:
    """Returns a variant with all points rounded, then for each point one with it alone and one
    with all others. A point of the layers is rounded in all of them."""
    taps = {point: _point_taps(spec, point, grid) for point in points()}
    variants = [Variant(taps=_merged(taps.values()))]
    for point in taps:
        others = (own for other, own in taps.items() if other != point)
        variants += [Variant(taps=taps[point]), Variant(taps=_merged(others))]
    return variants


def points() -> tuple[str, ...]:
    """Returns the points in the order in which a token passes them."""
    return (MODEL_POINTS[0], *LAYER_POINTS, *MODEL_POINTS[1:])


def weight_name(layer: int | None, role: str) -> str:
    """Returns the name in the decoder's state."""
    return OUTPUT if layer is None else f"layers.{layer}.{role}.weight"


def own_weight(decoder: Decoder, name: str) -> Tensor:
    """Returns the values of that name; a tied output layer has the embedding's."""
    is_tied = name == OUTPUT and decoder.spec.is_tied
    return decoder.get_parameter("embedding.weight" if is_tied else name).data


def part_names(part: Part) -> set[str]:
    return {weight_name(layer, role) for layer, role in part.modules}


def scale_dtype_of(checkpoint: Checkpoint) -> ScaleDType:
    """Returns the dtype of the checkpoint's floats, in which compress/ stores scales."""
    dtype = checkpoint.linear("o", 0).spec.dtype
    assert dtype in ("fp32", "bf16", "fp16"), dtype
    return dtype


def _point_taps(
    spec: ModelSpec, point: str, grid: ActivationGrid
) -> dict[str, Callable[[Tensor], Tensor]]:
    def tap(x: Tensor) -> Tensor:
        return round_activations(x, grid).values

    if point in MODEL_POINTS:
        return {point: tap}
    return {f"layers.{layer}.{point}": tap for layer in range(spec.num_layers)}


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _merged(
    parts: Iterable[Mapping[str, Callable[[Tensor], Tensor]]],
) -> dict[str, Callable[[Tensor], Tensor]]:
    return {name: tap for part in parts for name, tap in part.items()}


def _point_table(grid: ActivationGrid, qualities: Sequence[Quality]) -> SensitivityTable:
    everything, *pairs = qualities
    rows = tuple(
        Sensitivity(
            kind="point",
            name=POINT_NAMES[point],
            num_weights=0,
            alone=pairs[2 * at],
            all_but=pairs[2 * at + 1],
        )
        for at, point in enumerate(points())
    )
    return SensitivityTable(what=grid.name, everything=everything, rows=rows)
