"""Encoders on the native core: the PyTorch decoder's vectors, and the same bits in any batch."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.encoder_specs import BERT, ENCODERS, HEADS, MAX_POSITIONS, MODERN, QWEN, VOCAB_SIZE
from fakes.native_twin import native_encoder_twin, native_model, random_decoder
from paredown.executors.encoder_protocol import TokenText
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.models.decoder.decoder import Decoder
from paredown.spec.head import Head, HeadStep
from paredown.spec.kv import KVDType, KVSpec
from paredown.spec.model import Output

Floats = npt.NDArray[np.float32]
LENGTHS = (1, 16, 15, 90, 2, 65, MAX_POSITIONS, 33)


def random_text(rng: np.random.Generator, length: int, num_types: int = 0) -> TokenText:
    token_ids = rng.integers(0, VOCAB_SIZE, length).tolist()
    types = rng.integers(0, num_types, length).tolist() if num_types else None
    return TokenText(token_ids=token_ids, type_ids=types)


def random_texts(seed: int = 0, num_types: int = 0) -> list[TokenText]:
    rng = np.random.default_rng(seed)
    return [random_text(rng, length, num_types) for length in LENGTHS]


def expected_tokens(decoder: Decoder, text: TokenText) -> torch.Tensor:
    types = None if text.type_ids is None else torch.tensor([list(text.type_ids)])
    return decoder.encode(torch.tensor([list(text.token_ids)]), types)


def expected_vectors(decoder: Decoder, texts: list[TokenText]) -> Floats:
    found = [decoder.apply_head(expected_tokens(decoder, text)) for text in texts]
    vectors: Floats = torch.cat([one.flatten(0, -2) for one in found]).numpy()
    return vectors


def assert_near(found: Floats, expected: Floats, tolerance: float = 2e-5) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(1, np.abs(expected).max())
    dots = (found.astype(np.float64) * expected).sum(axis=1)
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    assert (dots[norms > 0] / norms[norms > 0]).min() >= 0.99999


@pytest.mark.parametrize("name", ENCODERS)
def test_token_vectors_are_those_of_the_decoder(name: str) -> None:
    spec = ENCODERS[name]
    decoder = random_decoder(spec)
    texts = random_texts(num_types=spec.embedding.num_token_types)
    encoder = native_encoder_twin(decoder, num_threads=2)
    expected = torch.cat([expected_tokens(decoder, text)[0] for text in texts]).numpy()
    assert_near(encoder.encode(texts, "tokens"), expected)
    assert_near(encoder.encode(texts), expected_vectors(decoder, texts))


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("name", ENCODERS)
def test_on_every_instruction_set(name: str, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    decoder = random_decoder(ENCODERS[name])
    texts = random_texts()[:4]
    encoder = native_encoder_twin(decoder)
    assert encoder.isa == isa
    assert_near(encoder.encode(texts), expected_vectors(decoder, texts))


@pytest.mark.parametrize("name", HEADS)
def test_heads_are_those_of_the_decoder(name: str) -> None:
    decoder = random_decoder(replace(BERT, head=HEADS[name]))
    texts = random_texts()
    encoder = native_encoder_twin(decoder, num_threads=2)
    assert_near(encoder.encode(texts), expected_vectors(decoder, texts))


def test_a_vocabulary_is_pooled_in_pieces() -> None:
    """More tokens than the rows of a wide step that are held at once (head_runner.cpp)."""
    size = 40_000
    wide = HeadStep(size=size)
    head = Head(
        kind="sparse",
        token_steps=(*HEADS["colbert"].token_steps, wide),
        pooling=("max_log_relu",),
    )
    decoder = random_decoder(replace(BERT, head=head))
    texts = random_texts()
    encoder = native_encoder_twin(decoder, num_threads=2)
    assert_near(encoder.encode(texts), expected_vectors(decoder, texts))
    assert encoder.step_bytes < 4 * size * sum(LENGTHS) / 2


def test_types_count() -> None:
    decoder = random_decoder(BERT)
    encoder = native_encoder_twin(decoder)
    (text,) = random_texts(num_types=2)[3:4]
    with_zeros = replace(text, type_ids=[0] * len(text.token_ids))
    untyped = replace(text, type_ids=None)
    assert np.array_equal(encoder.encode([untyped]), encoder.encode([with_zeros]))
    assert not np.allclose(encoder.encode([untyped]), encoder.encode([text]), atol=1e-3)
    mixed = [untyped, text]
    assert_near(encoder.encode(mixed), expected_vectors(decoder, mixed))


def test_unseen_tokens_change_nothing_but_themselves() -> None:
    """As with an attention mask of zeros over the last tokens."""
    head = replace(HEADS["tokens"], is_normalized=False)
    encoder = native_encoder_twin(random_decoder(replace(BERT, head=head)))
    rng = np.random.default_rng(2)
    text = random_text(rng, 40)
    alone = encoder.encode([text])
    for num_unseen in (1, 9, 30):
        longer = TokenText(
            token_ids=[*text.token_ids, *random_text(rng, num_unseen).token_ids],
            num_unseen=num_unseen,
        )
        found = encoder.encode([text, longer])
        assert np.array_equal(found[:40], alone)
        assert np.array_equal(found[40:80], alone)
        # An unseen token sees the text: as if it came next, alone.
        for index in (0, num_unseen - 1):
            assert np.isfinite(found[80 + index]).all()
    with pytest.raises(ValueError, match="unseen tokens"):
        encoder.encode([replace(text, num_unseen=40)])


def _batches() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, 120), min_size=1, max_size=12)


@pytest.mark.parametrize("kv_dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ENCODERS)
@settings(max_examples=8, deadline=None)
@given(lengths=_batches(), seed=st.integers(0, 2**32 - 1))
def test_a_text_has_the_same_bits_alone_and_in_any_batch(
    name: str, kv_dtype: KVDType, lengths: list[int], seed: int
) -> None:
    decoder = random_decoder(ENCODERS[name])
    alone = native_encoder_twin(decoder, kv_dtype)
    together = native_encoder_twin(decoder, kv_dtype, num_threads=3)
    rng = np.random.default_rng(seed)
    texts = [random_text(rng, length) for length in lengths]
    for output in ("head", "tokens"):
        expected = np.concatenate([alone.encode([text], output) for text in texts])
        assert np.isfinite(expected).all()
        assert np.array_equal(together.encode(texts, output), expected)


@pytest.mark.parametrize("name", HEADS)
def test_heads_have_the_same_bits_alone_and_in_a_batch(name: str) -> None:
    decoder = random_decoder(replace(BERT, head=HEADS[name]))
    texts = random_texts()
    alone = native_encoder_twin(decoder)
    expected = np.concatenate([alone.encode([text]) for text in texts])
    assert np.array_equal(native_encoder_twin(decoder, num_threads=3).encode(texts), expected)


def test_more_texts_than_run_side_by_side() -> None:
    decoder = random_decoder(MODERN)
    encoder = native_encoder_twin(decoder, num_threads=2)
    rng = np.random.default_rng(1)
    texts = [random_text(rng, int(length)) for length in rng.integers(1, 50, 200)]
    expected = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.array_equal(encoder.encode(texts), expected)


def test_a_vector_has_no_trace_of_what_ran_before() -> None:
    encoder = native_encoder_twin(random_decoder(BERT), num_threads=2)
    first, *others = random_texts()
    before = encoder.encode([first])
    encoder.encode(others)
    assert np.array_equal(encoder.encode([first]), before)


def bad_texts() -> dict[str, TokenText]:
    return {
        "empty": TokenText(token_ids=[]),
        "long": TokenText(token_ids=[0] * (MAX_POSITIONS + 1)),
        "token": TokenText(token_ids=[0, VOCAB_SIZE]),
        "negative": TokenText(token_ids=[-1]),
        "type": TokenText(token_ids=[0, 1], type_ids=[0, 2]),
        "types": TokenText(token_ids=[0, 1], type_ids=[0]),
    }


@pytest.mark.parametrize("name", bad_texts())
def test_bad_texts_are_refused_beside_good_ones(name: str) -> None:
    encoder = native_encoder_twin(random_decoder(BERT))
    (good, *_) = random_texts()
    with pytest.raises(ValueError, match="text 1 has"):
        encoder.encode([good, bad_texts()[name]])
    assert np.isfinite(encoder.encode([good])).all()


def test_no_texts_give_no_rows() -> None:
    encoder = native_encoder_twin(random_decoder(BERT))
    assert encoder.encode([]).shape == (0, BERT.hidden_size)
    assert encoder.encode([], "tokens").shape == (0, BERT.hidden_size)


def test_steps_and_encoding_take_turns() -> None:
    """A decoder with pages encodes whole texts too, and its pages stay as they are."""
    spec = replace(QWEN, output=Output(), head=None)
    decoder, kv = random_decoder(spec), KVSpec(num_pages=8, dtype="fp32")
    model = native_model(decoder, kv, num_threads=2)
    executor = NativeExecutor(model, kv)
    ids = random_texts()[3].token_ids
    parts = [
        SequenceSlice(token_ids=list(ids[:50]), start=0, pages=[5, 0, 2, 7, 1, 3], num_logits=50),
        SequenceSlice(token_ids=list(ids[50:]), start=50, pages=[5, 0, 2, 7, 1, 3], num_logits=40),
    ]
    expected = [executor.step([part]) for part in parts]
    assert np.array_equal(executor.step(parts[:1]), expected[0])
    found = model.encode([*ids], [], [len(ids)], [], "tokens")
    assert_near(found, expected_tokens(decoder, TokenText(token_ids=ids))[0].numpy())
    assert np.array_equal(executor.step(parts[1:]), expected[1])
    with pytest.raises(ValueError, match="no head"):
        model.encode([*ids], [], [len(ids)], [], "head")


def test_an_encoder_takes_no_steps() -> None:
    model = native_model(random_decoder(BERT), KVSpec(num_pages=4))
    with pytest.raises(ValueError, match="takes no steps"):
        model.step([1], [0], [1], [1], [[0]], [0])
