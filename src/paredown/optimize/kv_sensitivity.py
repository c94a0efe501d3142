"""Measures the cost of keeping one layer's keys and values in a small format. The table helps to
choose the layers of `--kv-dtype int4,first2=bf16` (docs/methods/kv_cache.md).

As in optimize/sensitivity.py, every layer has two figures: with only its keys and values in the
format, and with those of all other layers. Values are rounded as in native pages, with a scale for
each token and head.
"""

from paredown.compress.quantize.kv_cache import KVGridDType, dynamic_taps
from paredown.evaluate.quality.simulated import Variant, measure_variants
from paredown.evaluate.texts.text import EvalText
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.optimize.sensitivity import Sensitivity, SensitivityTable
from paredown.progress import OnCount


def measure_kv_sensitivity(
    checkpoint: Checkpoint,
    text: EvalText,
    dtype: KVGridDType,
    on_progress: OnCount | None = None,
) -> SensitivityTable:
    """Returns the table with one row per layer, in order. Raises CheckpointError for predictions
    that are not numbers."""
    decoder = Decoder.from_checkpoint(checkpoint)
    layers = range(decoder.spec.num_layers)
    taps = dynamic_taps(dtype, len(layers))
    variants = [Variant(taps=taps)]
    for layer in layers:
        own = {point: tap for point, tap in taps.items() if point.startswith(f"layers.{layer}.")}
        others = {point: tap for point, tap in taps.items() if point not in own}
        variants += [Variant(taps=own), Variant(taps=others)]
    (everything, *pairs), plain = measure_variants(decoder, variants, text, on_progress=on_progress)
    plain.require_numbers(str(checkpoint.path))
    return SensitivityTable(
        what=dtype,
        everything=everything,
        rows=tuple(
            Sensitivity(
                kind="kv",
                name=f"layer {layer}",
                num_weights=0,
                alone=pairs[2 * layer],
                all_but=pairs[2 * layer + 1],
            )
            for layer in layers
        ),
    )
