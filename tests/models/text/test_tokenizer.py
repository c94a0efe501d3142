"""The tokenizer against Transformers' own on the same folder, and broken folders."""

import json
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as LibraryTokenizer
from transformers import PreTrainedTokenizerFast

from paredown.errors import CheckpointError, RequestError
from paredown.models.text.tokenizer import LONG_TEXT_CHARS, Tokenizer

TEXT = ["It was the best of times, it was the worst of times.", "Call me Ishmael. <b>café</b>"]
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def build(folder: Path) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 300 entries that Transformers saves with special tokens around texts."""
    library = LibraryTokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(TEXT, trainer)
    library.add_tokens([AddedToken("<|user|>", special=True)])
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    library.enable_truncation(4)
    fast = PreTrainedTokenizerFast(tokenizer_object=library, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    return fast


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build(tmp_path)
    return tmp_path


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


def test_ids_and_texts_equal_transformers(tmp_path: Path) -> None:
    theirs = build(tmp_path)
    ours = Tokenizer.open(tmp_path)
    assert ours.vocab_size == len(theirs)
    for text in [*TEXT, "", " ", "naïve 🙂 \0 日本", "<s>Hi</s><|user|>"]:
        ids = ours.encode(text)
        assert ids == theirs.encode(text, add_special_tokens=False)
        expected = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids) == expected
        assert ours.decode(ids, skip_special_tokens=False) == text


@fuzz
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_byte_level_texts_come_back_whole(folder: Path, text: str) -> None:
    tokenizer = Tokenizer.open(folder)
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


@settings(fuzz, max_examples=30)
@given(
    pieces=st.lists(
        st.sampled_from(["<s>", "</s>", "<|user|>", "it", " ", "\n"])
        | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        min_size=1,
    )
)
def test_a_long_text_has_the_ids_of_its_short_form(folder: Path, pieces: list[str]) -> None:
    text = "".join(pieces)
    long_text = text * (LONG_TEXT_CHARS // len(text) + 1)
    library = LibraryTokenizer.from_file(str(folder / "tokenizer.json"))
    library.no_truncation()
    expected = library.encode(long_text, add_special_tokens=False).ids
    assert Tokenizer.open(folder).encode(long_text) == expected


def test_a_long_text_does_not_stop_other_threads(folder: Path) -> None:
    tokenizer, begins, is_done = Tokenizer.open(folder), threading.Event(), False

    def encode() -> None:
        nonlocal is_done
        begins.set()
        tokenizer.encode("a" * 1_000_000)
        is_done = True

    thread = threading.Thread(target=encode)
    thread.start()
    begins.wait()
    num_turns = 0
    while not is_done:
        time.sleep(0.001)
        num_turns += 1
    thread.join()
    assert num_turns > 50


def test_a_lone_surrogate_is_a_request_error(folder: Path) -> None:
    with pytest.raises(RequestError, match="a lone surrogate at character 2"):
        Tokenizer.open(folder).encode("ab\ud800")


def test_special_ids_come_from_all_files(folder: Path) -> None:
    tokenizer = Tokenizer.open(folder)
    assert tokenizer.bos_token_id == 0
    assert tokenizer.eos_token_ids == {1}
    edit_json(folder / "config.json", eos_token_id=7, bos_token_id=5)
    edit_json(folder / "generation_config.json", eos_token_id=[8, 9], bos_token_id=None)
    tokenizer = Tokenizer.open(folder)
    assert tokenizer.bos_token_id == 0
    assert tokenizer.eos_token_ids == {1, 7, 8, 9}
    (folder / "tokenizer_config.json").unlink()
    assert Tokenizer.open(folder).bos_token_id == 5


def test_no_special_ids(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    tokenizer = Tokenizer.open(folder)
    assert tokenizer.bos_token_id is None
    assert tokenizer.eos_token_ids == frozenset()


def test_special_tokens_may_be_objects(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", eos_token={"content": "</s>", "lstrip": False})
    assert Tokenizer.open(folder).eos_token_ids == {1}


def test_a_folder_without_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json \(saw: .*tokenizer_config"):
        Tokenizer.open(folder)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"model": {"type": "X"}}'])
def test_a_damaged_tokenizer(content: bytes, folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.open(folder)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "config.json"])
def test_a_damaged_config(name: str, folder: Path) -> None:
    (folder / name).write_text("[")
    with pytest.raises(CheckpointError, match=f"{name} is not valid JSON"):
        Tokenizer.open(folder)
