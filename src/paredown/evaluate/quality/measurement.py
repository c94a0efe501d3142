"""Measurement: all figures of one model, under the names in every verb's JSON."""

import math
from collections import Counter
from dataclasses import asdict, dataclass

from paredown.compress.size import checkpoint_bits_per_weight
from paredown.evaluate.quality.quality import Quality
from paredown.evaluate.quality.vector_agreement import VectorAgreement
from paredown.evaluate.speed.speed import Speed
from paredown.models.checkpoint import Checkpoint
from paredown.models.roles import linear_places
from paredown.spec.weight import WeightDType, WeightSpec


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Rates are tokens per second, or texts per second for an encoder. `kl_divergence` is nats per
    token, and the others are shares; None means not measured. `linear_dtype` is that of most linear
    layers, and `bits_per_weight` is 8 `file_bytes` over all parameters. `held_bytes` is the memory
    of the weights that a decode step reads, which is more where codes have no kernel.
    `decode_bytes` is all that such a step reads, including keys and values of the measured context.
    Cosines and agreements are those of an encoder (evaluate/quality/vector_agreement.py)."""

    name: str
    linear_dtype: WeightDType
    bits_per_weight: float
    file_bytes: int
    perplexity: float | None = None
    bits_per_byte: float | None = None
    kl_divergence: float | None = None
    top1_agreement: float | None = None
    cosine_mean: float | None = None
    cosine_least: float | None = None
    rank_agreement: float | None = None
    label_agreement: float | None = None
    decode_tokens_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    mbu: float | None = None
    mfu: float | None = None
    decode_spread: float | None = None
    prefill_spread: float | None = None
    texts_per_s: float | None = None
    texts_spread: float | None = None
    decode_bytes: int | None = None
    first_token_s: float | None = None
    memory_bytes: int | None = None
    held_bytes: int | None = None
    on_front: bool | None = None

    def as_json(self) -> dict[str, object]:
        """Returns the fields for JSON, where non-finite numbers become null."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def make_measurement(
    name: str,
    checkpoint: Checkpoint,
    *,
    quality: Quality | None = None,
    agreement: VectorAgreement | None = None,
    speed: Speed | None = None,
    original: Checkpoint | None = None,
    held_bytes: int | None = None,
) -> Measurement:
    """Collects the figures of one checkpoint; `original` is what it was compressed from."""
    return Measurement(
        name=name,
        linear_dtype=linear_format(checkpoint).dtype,
        bits_per_weight=checkpoint_bits_per_weight(
            checkpoint, None if original is None else original.spec
        ),
        file_bytes=checkpoint.file_bytes,
        held_bytes=held_bytes,
        **({} if quality is None else asdict(quality)),
        **({} if agreement is None else asdict(agreement)),
        **({} if speed is None else asdict(speed)),
    )


def linear_format(checkpoint: Checkpoint) -> WeightSpec:
    """Returns the format in which most linear layers of the transformer layers are multiplied."""
    specs = checkpoint.weight_specs()
    return Counter(specs[name] for name in _linear_names(checkpoint)).most_common(1)[0][0]


def linear_format_name(checkpoint: Checkpoint) -> str:
    """Returns the name of the format in which most of them are stored, codebooks too
    (aqlm-2x8-g8)."""
    specs, forms = checkpoint.weight_specs(), checkpoint.forms
    names = (
        forms[module].name if module in forms else specs[module].name
        for module in _linear_names(checkpoint)
    )
    return Counter(names).most_common(1)[0][0]


def _linear_names(checkpoint: Checkpoint) -> list[str]:
    return [checkpoint.linear_name(role, layer) for role, layer in linear_places(checkpoint.spec)]
