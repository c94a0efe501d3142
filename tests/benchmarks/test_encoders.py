"""The benchmark of encoders: its texts have exactly the tokens that a case says, and engines whose
vectors are others are left out."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from benchmarks.encoders.cases import KINDS, TEXT, EncoderCase, encoder_cases
from benchmarks.encoders.measure import least_cosine
from benchmarks.encoders.peers import KIND_PEERS, PEERS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tokenizer that knows every word of the texts."""
    words = dict.fromkeys(["[UNK]", "[CLS]", "[SEP]", *TEXT.split()])
    vocabulary = {word: number for number, word in enumerate(words)}
    library = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    library.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("num_tokens", [8, 16, 256])
def test_texts_have_as_many_tokens_as_the_case_says(folder: Path, num_tokens: int) -> None:
    texts = EncoderCase(kind="int8", num_tokens=num_tokens, batch=5).texts(folder)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert [len(library.encode(text).ids) for text in texts] == [num_tokens] * 5
    assert len(set(texts)) == 5


def test_a_word_of_several_tokens_is_no_text(folder: Path) -> None:
    library = Tokenizer(models.WordPiece({"[UNK]": 0, "the": 1}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    library.save(str(folder / "tokenizer.json"))
    with pytest.raises(ValueError, match="more than one"):
        EncoderCase(kind="int8", num_tokens=2, batch=1).texts(folder)


def test_every_kind_has_peers_and_a_bar() -> None:
    cases = encoder_cases(list(KINDS), [16], [1, 32])
    assert len(cases) == 2 * len(KINDS)
    for case in cases:
        assert case.min_ratio > 0
        assert set(KIND_PEERS[case.kind]) <= set(PEERS)


def test_the_least_cosine_is_that_of_the_worst_text() -> None:
    one = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)
    other = np.array([[3.0, 0.0], [1.0, 1.0]], np.float32)
    assert least_cosine(one, one) == pytest.approx(1.0)
    assert least_cosine(one, other) == pytest.approx(2**-0.5)
