"""Verification of encoders: a written checkpoint beside its original, by the vectors, scores or
labels that both make of the same texts (evaluate/quality/vector_agreement.py).

Both run through the executor that serves. Layer errors are those of a decoder's verification.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.quality.layer_error import LayerError, layer_errors, layers_correspond
from paredown.evaluate.quality.measurement import make_measurement
from paredown.evaluate.quality.vector_agreement import VectorAgreement, compare_vectors
from paredown.evaluate.texts.encoder_texts import EncoderTexts
from paredown.evaluate.verify.fingerprint import make_encoder_fingerprint
from paredown.evaluate.verify.verification import LAYER_TOKENS, Verification, all_notes
from paredown.executors.encoder_protocol import EncoderExecutor, TokenText
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.hub.hub_source import HubSource, model_name
from paredown.progress import OnCount, OnProgress
from paredown.spec.model import ModelSpec

Vectors = npt.NDArray[np.float32]
_OPTIONS = RunOptions()
# The texts that are run at once.
BATCH_TEXTS = 32


def verify_encoder(
    original: Checkpoint,
    compressed: Checkpoint,
    texts: EncoderTexts,
    *,
    recipe: str,
    reference: EncoderExecutor | None = None,
    options: RunOptions = _OPTIONS,
    notes: tuple[str, ...] = (),
    on_progress: OnProgress | None = None,
) -> Verification:
    """Measures both checkpoints. `reference` is the loaded original, if the caller has it.
    `options` set the threads of both, and the activations of the compressed one. Raises
    CheckpointError when either gives NaN or infinity, ConfigError for models whose vectors cannot
    be compared, CapacityError when the two do not fit in memory together, and UnsupportedError for
    a model that the native core does not run."""
    progress = on_progress or (lambda what, share: None)
    if reference is None:
        reference = load_encoder(original, RunOptions(threads=options.threads))
    encoder = load_encoder(compressed, options)
    agreement = measure_agreement(
        encoder,
        reference,
        texts,
        names=(f"the model made by {recipe}", str(original.path)),
        on_progress=lambda done, total: progress("reading texts", 0.8 * done / total),
    )
    errors, protocol = _layer_errors(original, compressed, texts, progress)
    return Verification(
        recipe=recipe,
        compressed=make_measurement(
            recipe,
            compressed,
            agreement=agreement,
            original=original,
            held_bytes=encoder.weight_bytes,
        ),
        original=make_measurement(
            model_name(original.path), original, held_bytes=reference.weight_bytes
        ),
        layer_errors=errors,
        protocol=protocol,
        fingerprint=make_encoder_fingerprint(compressed, encoder),
        notes=all_notes(notes, compressed, original),
        hub=HubSource.of(original.path),
        activations=options.activations,
    )


def measure_agreement(
    encoder: EncoderExecutor,
    reference: EncoderExecutor,
    texts: EncoderTexts,
    *,
    names: tuple[str, str] = ("the model", "its original"),
    on_progress: OnCount | None = None,
) -> VectorAgreement:
    """Returns how far the vectors of `encoder` are from those of the reference, on the same texts.
    `names` are for errors. Raises CheckpointError for vectors that are not numbers and ConfigError
    for vectors of unlike size."""
    _check(encoder.spec, reference.spec)
    total = 2 * len(texts.texts)

    def report(done: int, _: int) -> None:
        if on_progress is not None:
            on_progress(done, total)

    def report_second(done: int, num: int) -> None:
        report(num + done, num)

    expected_ND = encode_texts(reference, texts.texts, report)
    found_ND = encode_texts(encoder, texts.texts, report_second)
    for name, vectors_ND in zip(names, (found_ND, expected_ND), strict=True):
        if not np.isfinite(vectors_ND).all():
            raise CheckpointError(
                f"the vectors of {name} are not numbers",
                seen=f"{np.count_nonzero(~np.isfinite(vectors_ND))} of {vectors_ND.size}",
                remedy="Its weights are damaged, its training diverged, or it needs a wider range "
                "than its format has; use another checkpoint.",
            )
    head = reference.spec.head
    are_labels = head is not None and head.kind == "classification"
    return compare_vectors(found_ND, expected_ND, are_labels=are_labels)


def encode_texts(
    encoder: EncoderExecutor, texts: Sequence[TokenText], on_progress: OnCount | None = None
) -> Vectors:
    """Returns the vectors of all texts, [N, D], run in batches."""
    found = []
    for start in range(0, len(texts), BATCH_TEXTS):
        found.append(encoder.encode(texts[start : start + BATCH_TEXTS]))
        if on_progress is not None:
            on_progress(min(start + BATCH_TEXTS, len(texts)), len(texts))
    return np.concatenate(found)


def _check(spec: ModelSpec, reference: ModelSpec) -> None:
    """Raises ConfigError for models whose vectors stand for other things."""
    sizes = [
        one.hidden_size if one.head is None else one.head.output_size(one.hidden_size)
        for one in (spec, reference)
    ]
    if sizes[0] == sizes[1] and spec.vocab_size == reference.vocab_size:
        return
    raise ConfigError(
        "the vectors of the model and its original cannot be compared",
        seen=f"{sizes[0]} and {sizes[1]} numbers, of {spec.vocab_size:,} and "
        f"{reference.vocab_size:,} tokens",
        remedy="Compare with the model that this one was made from.",
    )


def _layer_errors(
    original: Checkpoint, compressed: Checkpoint, texts: EncoderTexts, progress: OnProgress
) -> tuple[list[LayerError], str]:
    if not layers_correspond(original, compressed):
        told = "layers are not compared, since they are no longer the original's"
        return [], f"{texts.protocol}; {told}"
    longest = max(texts.texts, key=lambda text: len(text.token_ids))
    tokens = longest.token_ids[:LAYER_TOKENS]
    errors = layer_errors(
        original,
        compressed,
        tokens,
        lambda done, total: progress("comparing layers", 0.8 + 0.2 * done / total),
    )
    return errors, f"{texts.protocol}; errors of layers on the {len(tokens)} tokens of one of them"
