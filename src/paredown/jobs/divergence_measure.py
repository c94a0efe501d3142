"""DivergenceMeasure: how far a pruned model is from its original, on the validation text.

decoders    the KL divergence of their predictions, in nats per token
encoders    1 - the least cosine of a text's two vectors
"""

from typing import Protocol

from paredown.evaluate.quality.simulated import Variant, measure_variants
from paredown.evaluate.texts.validation_text import choose_validation_text, choose_validation_texts
from paredown.evaluate.verify.encoder_verification import measure_agreement
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

# The text that decides. Its sampling error stays below the tolerance.
_NUM_TOKENS = 2048
_WINDOW_TOKENS = 512


class DivergenceMeasure(Protocol):
    """`text` says for notes what was read."""

    text: str

    def of(self, pruned: Checkpoint, name: str) -> float:
        """Returns the divergence of a pruned checkpoint; `name` is for errors. Raises
        CheckpointError for results that are not numbers."""
        ...

    def told(self, divergence: float) -> str:
        """Says the divergence in a note."""
        ...


class KlDivergence:
    """The KL divergence of predictions, in nats per token, on the PyTorch decoder."""

    def __init__(self, original: Checkpoint) -> None:
        self._reference = Decoder.from_checkpoint(original)
        self._text = choose_validation_text(original, None, _NUM_TOKENS, _WINDOW_TOKENS)
        self.text = f"{self._text.num_tokens:,} tokens of {self._text.source}"

    def of(self, pruned: Checkpoint, name: str) -> float:
        decoder = Decoder.from_checkpoint(pruned)
        (quality,), _ = measure_variants(decoder, [Variant()], self._text, self._reference)
        quality.require_numbers(name)
        assert quality.kl_divergence is not None
        return quality.kl_divergence

    def told(self, divergence: float) -> str:
        return f"KL {divergence:.4f}"


class CosineDistance:
    """The largest distance among the texts, as the executor that serves makes their vectors."""

    def __init__(self, original: Checkpoint, num_threads: int | None) -> None:
        self._options = RunOptions(threads=ThreadPlan.resolve(num_threads))
        self._reference = load_encoder(original, self._options)
        self._texts = choose_validation_texts(original, _NUM_TOKENS)
        number = len(self._texts.texts)
        self.text = f"{number:,} texts ({self._texts.num_tokens:,} tokens) of {self._texts.source}"

    def of(self, pruned: Checkpoint, name: str) -> float:
        names = (name, "its original")
        agreement = measure_agreement(
            load_encoder(pruned, self._options), self._reference, self._texts, names=names
        )
        return 1.0 - agreement.cosine_least

    def told(self, divergence: float) -> str:
        return f"cosine {1.0 - divergence:.4f} at the least"


def divergence_measure(original: Checkpoint, num_threads: int | None) -> DivergenceMeasure:
    """Returns the measure for models made of `original`; encoders are run on `num_threads`, None is
    all cores. Raises what choosing the text raises, and
    UnsupportedError or CapacityError for an encoder that cannot be run here."""
    if original.spec.generates:
        return KlDivergence(original)
    return CosineDistance(original, num_threads)
