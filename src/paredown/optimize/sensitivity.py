"""Sensitivity: the cost of quantizing one part of a model (docs/methods/sensitivity.md).

Every part has two figures: with only that part quantized, and with everything quantized except it
(leave one out). They are KL divergences to the unchanged model, from predictions on a text; those
of an encoder are scores of a task, and cosines to its unchanged vectors. Parts are layers or
modules, whose weights are rounded, or points of the model, where activations are (softmax input,
sums of the residual stream, ...).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from torch import Tensor

from paredown.compress.quantize.method import LayerTarget, Quantizer
from paredown.compress.require_floats import require_floats
from paredown.errors import ConfigError, naming
from paredown.evaluate.quality.quality import Quality
from paredown.evaluate.quality.simulated import OUTPUT, Variant, measure_variants
from paredown.evaluate.quality.simulated_texts import measure_text_variants
from paredown.evaluate.quality.task_quality import TaskQuality, TaskTexts
from paredown.evaluate.texts.text import EvalText
from paredown.formats.integer import group_columns
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.optimize.model_parts import OUTPUT_PART, PART_KINDS, Part, PartKind, find_parts
from paredown.optimize.point_rounding import POINT_NAMES, PointRounding
from paredown.progress import OnCount
from paredown.spec.model import ModelSpec
from paredown.spec.weight import ScaleDType, WeightSpec

# An encoder's figures, or those of a model that predicts tokens.
AnyQuality = Quality | TaskQuality

# The window length of a sensitivity run: short windows cost less and show attention well enough.
WINDOW_TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The figures of one part. `alone` is with only it quantized, `all_but` with everything else.
    `num_weights` is 0 for points and for keys and values (kv)."""

    kind: PartKind | Literal["point", "kv"]
    name: str
    num_weights: int
    alone: AnyQuality
    all_but: AnyQuality


@dataclass(frozen=True, kw_only=True)
class SensitivityTable:
    """`everything` is for the model with all parts quantized; `what` names the grid."""

    what: str
    everything: AnyQuality
    rows: tuple[Sensitivity, ...]


@dataclass(frozen=True, kw_only=True)
class SensitivityResult:
    """`activations` is None if points were not asked for, `kv` if keys and values were not
    (optimize/kv_sensitivity.py), `pruned` if pruning was not (optimize/prune_sensitivity.py)."""

    model: str
    protocol: str
    plain: AnyQuality
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
    text: EvalText | TaskTexts,
    spec: WeightSpec,
    kinds: Sequence[PartKind],
    quantizer: Quantizer,
    rounding: PointRounding | None = None,
    on_progress: OnCount | None = None,
    *,
    with_output: bool = False,
) -> SensitivityResult:
    """Measures weights in `spec` by `quantizer` (one that needs no calibration), activations by
    `rounding`, and with `with_output` the output layer. Encoders are measured on a task.

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
    variants += [] if rounding is None else rounding.variants(decoder.spec)
    qualities, plain = _measured(decoder, variants, text, on_progress)
    plain.require_numbers(str(checkpoint.path))
    for quality in qualities:
        quality.require_numbers(f"{checkpoint.path}, quantized")
    weights = _weight_table(decoder.spec, spec, parts, qualities[:num_of_weights])
    activations = None
    if rounding is not None:
        activations = _point_table(decoder.spec, rounding, qualities[num_of_weights:])
    return SensitivityResult(
        model=checkpoint.path.name,
        protocol=text.protocol,
        plain=plain,
        weights=weights,
        activations=activations,
    )


def _measured(
    decoder: Decoder,
    variants: Sequence[Variant],
    text: EvalText | TaskTexts,
    on_progress: OnCount | None,
) -> tuple[Sequence[AnyQuality], AnyQuality]:
    if isinstance(text, TaskTexts):
        return measure_text_variants(decoder, variants, text, on_progress)
    return measure_variants(decoder, variants, text, on_progress=on_progress)


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
    """Returns the loss that leaving the part unquantized removes, a KL divergence or points of the
    task's score; noise may make it negative."""
    return table.everything.loss - row.all_but.loss


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


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _weight_table(
    model: ModelSpec, spec: WeightSpec, parts: Sequence[Part], qualities: Sequence[AnyQuality]
) -> SensitivityTable:
    everything, *pairs = qualities
    rows = tuple(
        Sensitivity(
            kind=part.kind,
            name=part.name,
            num_weights=part.num_weights(model),
            alone=pairs[2 * at],
            all_but=pairs[2 * at + 1],
        )
        for at, part in enumerate(parts)
    )
    return SensitivityTable(what=spec.name, everything=everything, rows=rows)


def _point_table(
    spec: ModelSpec, rounding: PointRounding, qualities: Sequence[AnyQuality]
) -> SensitivityTable:
    everything, *pairs = qualities
    rows = tuple(
        Sensitivity(
            kind="point",
            name=POINT_NAMES[point],
            num_weights=0,
            alone=pairs[2 * at],
            all_but=pairs[2 * at + 1],
        )
        for at, point in enumerate(rounding.parts(spec))
    )
    return SensitivityTable(what=rounding.name, everything=everything, rows=rows)
