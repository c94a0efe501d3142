"""Perplexity and divergence against plain float64 sums over the toy model's own logits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fakes.toy_executor import ToyExecutor, ToyTokenizer, reference_logits, toy_spec
from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.quality.divergence import kl_divergences, num_agreeing
from paredown.evaluate.quality.perplexity import Predictions, log_normalizers, perplexity
from paredown.evaluate.quality.quality import measure_quality, num_pages_for
from paredown.evaluate.texts.text import EvalText, first_token, prepare_text

TEXT = "It is a truth universally acknowledged, that a single man in possession of a café " * 9


class BosTokenizer(ToyTokenizer):
    bos_token_id = 300

    def decode(self, token_ids) -> str:
        return super().decode([token for token in token_ids if token != self.bos_token_id])


class Perturbed(ToyExecutor):
    """The same model with other logits, the same ones each time."""

    def step(self, slices):
        logits = super().step(slices)
        shift = np.sin(np.arange(logits.shape[1], dtype=np.float32) * 1.7)
        return logits + self.strength * shift

    def __init__(self, strength: float, **options) -> None:
        super().__init__(**options)
        self.strength = np.float32(strength)


def log_softmax(row: np.ndarray) -> np.ndarray:
    row = row.astype(np.float64)
    return row - row.max() - math.log(np.exp(row - row.max()).sum())


def eval_text(tokenizer: ToyTokenizer, window: int) -> EvalText:
    return prepare_text(tokenizer.encode(TEXT), tokenizer, window, "a sentence")


@pytest.mark.parametrize("window", [40, 256, 600, 2048])
@pytest.mark.parametrize("tokenizer", [ToyTokenizer(), BosTokenizer()], ids=["plain", "bos"])
def test_quality_equals_plain_sums(tokenizer: ToyTokenizer, window: int) -> None:
    spec = toy_spec(max_positions=4096)
    text = eval_text(tokenizer, window)
    pages = num_pages_for(text)
    reference = ToyExecutor(spec=spec, num_pages=pages)
    model = Perturbed(0.5, spec=spec, num_pages=pages)
    (quality,), own = measure_quality([model], text, reference)

    shift = 0.5 * np.sin(np.arange(512, dtype=np.float32) * 1.7)
    nll = nll_reference = kl = agreeing = 0.0
    for one in text.windows:
        for j, target in enumerate(one.targets):
            logits = reference_logits(one.inputs[: j + 1], 512)
            log_p, log_q = log_softmax(logits), log_softmax(logits + shift)
            nll_reference -= log_p[target]
            nll -= log_q[target]
            kl += float(np.sum(np.exp(log_p) * (log_p - log_q)))
            agreeing += np.argmax(log_p) == np.argmax(log_q)
    assert own is not None
    assert quality.perplexity == pytest.approx(math.exp(nll / text.num_tokens), rel=1e-5)
    assert own.perplexity == pytest.approx(math.exp(nll_reference / text.num_tokens), rel=1e-5)
    assert quality.bits_per_byte == pytest.approx(nll / math.log(2) / text.num_bytes, rel=1e-6)
    assert quality.kl_divergence == pytest.approx(kl / text.num_tokens, rel=1e-4)
    assert quality.top1_agreement == agreeing / text.num_tokens
    assert own.kl_divergence is None


def test_a_model_equals_itself() -> None:
    text = eval_text(ToyTokenizer(), 256)
    models = [ToyExecutor(num_pages=16) for _ in range(2)]
    (quality,), own = measure_quality(models[:1], text, models[1])
    assert quality.kl_divergence == 0
    assert quality.top1_agreement == 1
    assert own is not None
    assert quality.perplexity == own.perplexity
    (alone,), none = measure_quality(models[:1], text)
    assert none is None
    assert alone.perplexity == own.perplexity
    assert alone.kl_divergence is None


@given(count=st.integers(1, 300), window=st.integers(1, 70), bos=st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_token_is_predicted_once_from_its_own_window(count, window, bos) -> None:
    tokenizer = BosTokenizer() if bos else ToyTokenizer()
    ids = [1 + i % 256 for i in range(count)]
    if not bos and count == 1:
        with pytest.raises(ConfigError):
            prepare_text(ids, tokenizer, window, "x")
        return
    text = prepare_text(ids, tokenizer, window, "x")
    targets = [token for one in text.windows for token in one.targets]
    assert targets == (ids if bos else ids[1:])
    assert text.num_tokens == len(targets)
    for one in text.windows:
        assert len(one.inputs) == len(one.targets) <= window
        assert one.inputs[1:] == one.targets[:-1]
        if bos:
            assert one.inputs[0] == 300


def test_bytes_are_those_of_the_predicted_text() -> None:
    text = eval_text(BosTokenizer(), 256)
    assert text.num_bytes == len(TEXT.encode())
    text = eval_text(ToyTokenizer(), 256)
    assert text.num_bytes == len(TEXT.encode()) - 1


def test_other_vocabularies_are_refused() -> None:
    text = eval_text(ToyTokenizer(), 256)
    small = ToyExecutor(spec=toy_spec(vocab_size=300), num_pages=16)
    with pytest.raises(ConfigError, match=r"300, 512"):
        measure_quality([ToyExecutor(num_pages=16)], text, small)


def test_a_text_that_does_not_fit_the_model_is_refused() -> None:
    text = eval_text(ToyTokenizer(), 256)
    short = ToyExecutor(spec=toy_spec(max_positions=128), num_pages=16)
    with pytest.raises(ConfigError, match="context of 128"):
        measure_quality([ToyExecutor(num_pages=16)], text, short)
    narrow = ToyExecutor(spec=toy_spec(vocab_size=100), num_pages=16)
    with pytest.raises(ConfigError, match="vocabulary of 100"):
        measure_quality([narrow], text)


def test_first_token_is_bos_or_endoftext() -> None:
    class EndOfText(ToyTokenizer):
        def encode(self, text: str) -> list[int]:
            return [0] if text == "<|endoftext|>" else super().encode(text)

    assert first_token(ToyTokenizer()) is None
    assert first_token(EndOfText()) == 0
    assert first_token(BosTokenizer()) == 300


@given(
    rows=hnp.arrays(
        np.float32,
        st.tuples(st.just(2), st.integers(1, 5), st.integers(2, 20)),
        elements=st.floats(-200, 200, width=32),
    )
)
@settings(max_examples=100, deadline=None)
def test_rows_equal_float64_and_divergence_is_never_negative(rows: np.ndarray) -> None:
    p, q = rows
    kl = kl_divergences(Predictions.of(p), Predictions.of(q))
    assert np.all(kl >= 0)
    for t in range(len(p)):
        log_p, log_q = log_softmax(p[t]), log_softmax(q[t])
        exact = float(np.sum(np.exp(log_p) * (log_p - log_q)))
        assert kl[t] == pytest.approx(exact, rel=1e-3, abs=1e-4)
        largest = float(p[t].max())
        exact_lse = largest + math.log(np.exp(p[t].astype(np.float64) - largest).sum())
        assert log_normalizers(p)[t] == pytest.approx(exact_lse, rel=1e-6, abs=1e-6)
    assert num_agreeing(Predictions.of(p), Predictions.of(p)) == len(p)


def test_small_divergences_are_resolved() -> None:
    rng = np.random.default_rng(0)
    p = rng.normal(size=(8, 5000)).astype(np.float32) * 3
    q = p + (rng.normal(size=p.shape) * 1e-3).astype(np.float32)
    for t, value in enumerate(kl_divergences(Predictions.of(p), Predictions.of(q))):
        log_p, log_q = log_softmax(p[t]), log_softmax(q[t])
        assert value == pytest.approx(float(np.sum(np.exp(log_p) * (log_p - log_q))), rel=0.01)


def test_perplexity_that_no_float_holds_is_infinite() -> None:
    assert perplexity(1e6, 10) == math.inf
    assert perplexity(0.0, 10) == 1.0


def test_predictions_that_are_not_numbers_are_refused_not_called_bad() -> None:
    text = eval_text(ToyTokenizer(), 64)
    pages = num_pages_for(text)
    (good, broken), _ = measure_quality(
        [ToyExecutor(num_pages=pages), Perturbed(math.nan, num_pages=pages)], text
    )
    good.require_numbers("good")
    assert math.isnan(broken.perplexity)
    with pytest.raises(CheckpointError, match="predictions of broken are not numbers"):
        broken.require_numbers("broken")
