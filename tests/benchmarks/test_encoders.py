"""The benchmark of encoders: its texts have exactly the tokens that a case says, engines that fail
are called no more, and llama.cpp is tried with all that a kind and a batch allow."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from benchmarks.clock import CLOCKS, num_threads_of
from benchmarks.encoders.cases import KINDS, TEXT, EncoderCase, encoder_cases
from benchmarks.encoders.measure import least_cosine
from benchmarks.encoders.peers import KIND_PEERS, PEERS
from benchmarks.encoders.peers.llama_cpp_choices import (
    CALL_TEXTS,
    CALL_TOKENS,
    call_texts_of,
    settings_of,
)
from benchmarks.encoders.peers.timed import timed
from benchmarks.encoders.turns import Turns
from benchmarks.peers.child import PeerError
from paredown.compress.convert.convert import CONVERSIONS
from paredown.errors import ConfigError


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


class FakeChild:
    """Answers with the given seconds; fails from call `fails_at` on."""

    def __init__(self, seconds: float, fails_at: int | None = None) -> None:
        self.seconds = seconds
        self.fails_at = fails_at
        self.num_calls = 0

    def call(self, method: str, *arguments: Any) -> list[float]:
        assert method == "seconds"
        self.num_calls += 1
        if self.num_calls == self.fails_at:
            raise PeerError("crashed")
        _, num_times, clock = arguments
        assert clock == "wall"
        return [self.seconds] * num_times


def test_rounds_have_a_time_each_and_the_warm_up_none() -> None:
    slow, fast = FakeChild(1.0), FakeChild(0.01)
    turns = Turns({"slow": slow, "fast": fast})  # type: ignore[dict-item]
    assert turns.rounds(["a text"], 3) == {"slow": [1.0] * 3, "fast": [0.01] * 3}
    assert slow.num_calls == 4
    assert fast.num_calls == 8


def test_an_engine_that_fails_is_called_no_more_and_has_no_times() -> None:
    good, bad = FakeChild(1.0), FakeChild(1.0, fails_at=2)
    turns = Turns({"good": good, "bad": bad})  # type: ignore[dict-item]
    assert turns.rounds(["a text"], 3) == {"good": [1.0] * 3}
    assert turns.failures == {"bad": "crashed"}
    assert bad.num_calls == 2


def test_llama_cpp_reads_files_that_we_write() -> None:
    for kind in KINDS:
        settings = settings_of(kind)
        assert len(set(settings)) == len(settings)
        assert {one.target for one in settings} <= set(CONVERSIONS)
        assert {one.flash_attention for one in settings} == {True, False}


@pytest.mark.parametrize("num_texts", [1, 3, 32])
@pytest.mark.parametrize("longest", [1, 16, 256, CALL_TOKENS])
def test_calls_have_room_for_their_texts(num_texts: int, longest: int) -> None:
    found = call_texts_of(num_texts, longest)
    assert found == sorted(set(found))
    assert found[0] == 1
    assert found[-1] == min(num_texts, CALL_TOKENS // longest, max(CALL_TEXTS))


def test_processor_seconds_are_those_of_one_thread() -> None:
    assert num_threads_of(None, "cpu") == num_threads_of(1, "cpu") == 1
    assert num_threads_of(3, "wall") == 3
    with pytest.raises(ConfigError, match="one thread"):
        num_threads_of(2, "cpu")


def test_each_call_has_the_seconds_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([1.0, 1.5, 2.0, 4.0])
    monkeypatch.setitem(CLOCKS, "cpu", lambda: next(readings))
    calls = list[list[str]]()
    assert timed(calls.append, ["a text"], 2, "cpu") == [0.5, 2.0]
    assert calls == [["a text"]] * 2
