"""Measures models on a text through the executor that serves them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.quality.divergence import kl_divergences, num_agreeing
from paredown.evaluate.quality.perplexity import (
    Predictions,
    bits_per_byte,
    negative_log_likelihoods,
    perplexity,
)
from paredown.evaluate.texts.text import EvalText, EvalWindow
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.progress import OnCount
from paredown.spec.kv import PAGE_SIZE

# Tokens per step; this many rows of logits are held per model.
CHUNK_TOKENS = 256


@dataclass(frozen=True, kw_only=True)
class Quality:
    """`kl_divergence` (nats per token) and `top1_agreement` (a share) compare with the reference;
    they are None without one."""

    perplexity: float
    bits_per_byte: float
    kl_divergence: float | None
    top1_agreement: float | None

    @property
    def loss(self) -> float:
        """The KL divergence; 0 for the reference itself."""
        return self.kl_divergence or 0.0

    def require_numbers(self, name: str) -> None:
        """Raises CheckpointError when the model called `name` predicted NaN or infinity."""
        if math.isnan(self.perplexity):
            raise CheckpointError(
                f"the predictions of {name} are not numbers",
                seen=f"perplexity {self.perplexity}",
                remedy="Its weights are damaged, its training diverged, or it needs a wider range "
                "than its format has; use another checkpoint.",
            )


@dataclass
class QualitySums:
    """Sums over a text's tokens."""

    nll: float = 0.0
    kl: float = 0.0
    agreeing: int = 0

    def add(
        self, predictions: Predictions, targets: list[int], reference: Predictions | None
    ) -> None:
        """Adds rows. `targets` are the tokens that followed them; `reference` predicts the same
        tokens."""
        self.nll += float(np.sum(negative_log_likelihoods(predictions, targets)))
        if reference is not None:
            self.kl += float(np.sum(kl_divergences(reference, predictions)))
            self.agreeing += num_agreeing(reference, predictions)

    def quality(self, text: EvalText, compared: bool) -> Quality:
        return Quality(
            perplexity=perplexity(self.nll, text.num_tokens),
            bits_per_byte=bits_per_byte(self.nll, text.num_bytes),
            kl_divergence=self.kl / text.num_tokens if compared else None,
            top1_agreement=self.agreeing / text.num_tokens if compared else None,
        )


def num_pages_for(text: EvalText) -> int:
    """Returns the number of pages that measuring on `text` needs; they are used from 0 on."""
    num_read = max(len(window.encoder_ids) for window in text.windows)
    return -(-text.window_tokens // PAGE_SIZE) + -(-num_read // PAGE_SIZE)


def measure_quality(
    models: Sequence[Executor],
    text: EvalText,
    reference: Executor | None = None,
    on_progress: OnCount | None = None,
) -> tuple[list[Quality], Quality | None]:
    """Returns each model's quality in order, and the reference's own.

    All models run on the same chunk of text before the next, so the reference runs once and no
    logits are kept. Raises ConfigError when a model's vocabulary is not the reference's, or the
    text does not fit a model's vocabulary or context.
    """
    executors = [*models] if reference is None else [*models, reference]
    _check(executors, text)
    sums = [QualitySums() for _ in executors]
    done = 0
    for window in text.windows:
        for inputs, targets in _chunks(window):
            expected = None if reference is None else Predictions.of(reference.step([inputs]))
            for model, own in zip(executors, sums, strict=True):
                is_reference = expected is not None and model is reference
                found = expected if is_reference else Predictions.of(model.step([inputs]))
                assert found is not None
                own.add(found, targets, None if is_reference else expected)
            done += len(targets)
            if on_progress is not None:
                on_progress(done, text.num_tokens)
    if reference is None:
        return [own.quality(text, compared=False) for own in sums], None
    compared = [own.quality(text, compared=True) for own in sums[:-1]]
    return compared, sums[-1].quality(text, compared=False)


def _chunks(window: EvalWindow) -> Iterator[tuple[SequenceSlice, list[int]]]:
    pages = list(range(-(-len(window.inputs) // PAGE_SIZE)))
    num_read = len(window.encoder_ids)
    cross_pages = list(range(len(pages), len(pages) + -(-num_read // PAGE_SIZE)))
    for start in range(0, len(window.inputs), CHUNK_TOKENS):
        tokens = window.inputs[start : start + CHUNK_TOKENS]
        covered = pages[: -(-(start + len(tokens)) // PAGE_SIZE)]
        inputs = SequenceSlice(
            token_ids=tokens,
            start=start,
            pages=covered,
            num_logits=len(tokens),
            num_text_tokens=len(window.inputs),
            encoder_token_ids=() if start else window.encoder_ids,
            num_cross_tokens=num_read,
            cross_pages=cross_pages,
        )
        yield inputs, window.targets[start : start + CHUNK_TOKENS]


def _check(executors: Sequence[Executor], text: EvalText) -> None:
    has_prompts = any(window.encoder_ids for window in text.windows)
    if any((executor.spec.encoder is not None) != has_prompts for executor in executors):
        raise ConfigError(
            "an encoder-decoder and a decoder do not predict the same text",
            seen=", ".join(executor.spec.family for executor in executors),
            remedy="Compare with the model that this one was made from.",
        )
    sizes = {executor.spec.vocab_size for executor in executors}
    if len(sizes) > 1:
        raise ConfigError(
            "the model and the reference have different vocabularies",
            seen=f"{sorted(sizes)} tokens",
            remedy="Compare with the model that this one was made from.",
        )
    context = min(executor.spec.max_positions for executor in executors)
    if text.window_tokens > context:
        raise ConfigError(
            "the model and the reference have different contexts",
            seen=f"windows of {text.window_tokens} tokens, a context of {context}",
            remedy="Compare with the model that this one was made from.",
        )
    largest = max(
        max(*window.inputs, *window.targets, *window.encoder_ids) for window in text.windows
    )
    if largest >= min(sizes):
        raise ConfigError(
            "the tokenizer knows tokens that the model does not",
            seen=f"token {largest}, a vocabulary of {min(sizes)}",
            remedy="Use the tokenizer.json that belongs to these weights.",
        )
