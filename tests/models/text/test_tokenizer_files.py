"""The files beside tokenizer.json, against Transformers on the same folder."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Library
from transformers import AutoTokenizer

from fakes.small_tokenizers import NAMES, byte_level, sentence_piece, word_piece, write_folder
from paredown.engine.detokenize import make_detokenizer
from paredown.engine.prompt import encode_prompt
from paredown.errors import CheckpointError
from paredown.models.files.folder_files import copy_files
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.vocabulary import read_vocabulary
from paredown.models.text.tokenizer import Tokenizer

CLASS = {"tokenizer_class": "TokenizersBackend"}
TEXTS = ["<|mark|>a", "a <|other|> b", "<s>x</s>", "<pad>", "[x] y", "it's <|mark|> , no ."]
MARK = {"content": "<|mark|>", "special": True, "normalized": False}
PLAIN = {"lstrip": False, "rstrip": False, "single_word": False}


def check_same(folder: Path, texts: list[str]) -> None:
    """Ids, and the text of all ids together and of each alone."""
    ours, theirs = Tokenizer.open(folder), AutoTokenizer.from_pretrained(folder)
    assert ours.vocab_size == len(theirs)
    for text in texts:
        ids = theirs(text)["input_ids"]
        assert encode_prompt(ours, text) == ids
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
        whole = theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids) == whole
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids)
        growing = make_detokenizer(ours, [])
        assert "".join([*map(growing.push, ids), growing.flush()]) == whole


def test_added_tokens_of_three_files(tmp_path: Path) -> None:
    decoder = {**NAMES, "added_tokens_decoder": {"258": {**MARK, **PLAIN}}}
    a = write_folder(tmp_path / "a", byte_level(), decoder)
    b = write_folder(tmp_path / "b", byte_level(), added_tokens={"<|mark|>": 258})
    library = byte_level()
    library.add_tokens([AddedToken("<|mark|>", special=False, normalized=False)])
    c = write_folder(tmp_path / "c", library, decoder)
    assert [Tokenizer.open(path).encode("<|mark|>a") for path in (a, b)] == [[258, 66], [258, 66]]
    assert Tokenizer.open(b).decode([258, 66]) == "<|mark|>a"
    assert Tokenizer.open(c).decode([258, 66]) == "a"
    texts = Tokenizer.open(c).token_texts
    assert texts is not None
    assert texts.of(258) == ""
    for path in (a, b, c):
        (path / "tokenizer_config.json").write_text(
            json.dumps(json.loads((path / "tokenizer_config.json").read_text()) | CLASS)
        )
        check_same(path, TEXTS)


def test_older_files_count_where_the_newer_list_is_missing(tmp_path: Path) -> None:
    older = {
        "added_tokens": {"<|mark|>": 259, "<|other|>": 258},
        "special_tokens_map": {"eos_token": "<|mark|>", "additional_special_tokens": ["[x]"]},
    }
    a = write_folder(tmp_path / "a", byte_level(), {**NAMES, **CLASS}, **older)
    listed = {**NAMES, **CLASS, "added_tokens_decoder": {}}
    b = write_folder(tmp_path / "b", byte_level(), listed, **older)
    ours = Tokenizer.open(a)
    assert ours.encode("<|mark|><|other|>[x]") == [259, 258, 260]
    assert ours.eos_token_ids == {259}
    assert Tokenizer.open(b).eos_token_ids == {1}
    assert len(Tokenizer.open(b).encode("<|mark|>")) > 1
    for path in (a, b):
        check_same(path, TEXTS)


def test_where_files_disagree_about_bos_the_post_processor_decides(tmp_path: Path) -> None:
    wrong = {"bos_token_id": 0, "eos_token_id": 1}
    for more in ({}, {"add_bos_token": True}, {"add_bos_token": False}):
        path = write_folder(tmp_path, sentence_piece(), {**NAMES, **CLASS, **more}, config=wrong)
        tokenizer = Tokenizer.open(path)
        assert encode_prompt(tokenizer, "to") == [1, 7]
        assert tokenizer.bos_token_id == tokenizer.prefix_token_id == 1
        assert tokenizer.add_bos
        check_same(path, ["to", "to to", "ü", ""])
        path = write_folder(tmp_path, byte_level(), {**NAMES, **CLASS, **more}, config=wrong)
        assert encode_prompt(Tokenizer.open(path), "a") == [66]
        check_same(path, ["a", ""])


def test_all_that_a_post_processor_puts_around_a_text(tmp_path: Path) -> None:
    library = byte_level("[g]", "<sop>")
    library.post_processor = processors.TemplateProcessing(
        single="[g] <sop> $A </s>", special_tokens=[("[g]", 258), ("<sop>", 259), ("</s>", 1)]
    )
    path = write_folder(tmp_path, library, {**CLASS})
    assert encode_prompt(Tokenizer.open(path), "a") == [258, 259, 66, 1]
    check_same(path, ["a", "", "<sop>a"])


@pytest.mark.parametrize("cleans", [True, False, None])
@pytest.mark.parametrize("forced", [True, False])
def test_spaces_before_punctuation(cleans: bool | None, forced: bool, tmp_path: Path) -> None:
    name = "clean_up_tokenization_spaces"
    more = {} if cleans is None else {name: cleans}
    more |= {f"{name}_for_bpe_even_though_it_will_corrupt_output": True} if forced else {}
    for library in (word_piece(), byte_level()):
        path = write_folder(tmp_path, library, {**CLASS, **more})
        check_same(path, ["it 's n't it , it ! ' s", "it ' m . ' ' ' it ?", "' '", "it ing . . it"])


def test_special_tokens_that_are_split(tmp_path: Path) -> None:
    path = write_folder(tmp_path, byte_level(), {**NAMES, **CLASS, "split_special_tokens": True})
    assert len(Tokenizer.open(path).encode("<s>")) == 3
    check_same(path, TEXTS)


def test_a_file_for_a_version(tmp_path: Path) -> None:
    listed = ["tokenizer.json", "tokenizer.4.0.json", "tokenizer.99.0.json"]
    path = write_folder(tmp_path, byte_level(), {**CLASS, "fast_tokenizer_files": listed})
    for name in listed[1:]:
        byte_level("<|mark|>", bos="4" in name).save(str(path / name))
    assert encode_prompt(Tokenizer.open(path), "a") == [0, 66]
    check_same(path, TEXTS)


TOKENS = st.sampled_from(["<|mark|>", "<|other|>", "<pad>", "[x]", "<s>", "</s>", "a", "zz"])
FLAGS = st.fixed_dictionaries(
    {name: st.booleans() for name in ("special", "normalized", "lstrip", "rstrip", "single_word")}
)


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_made_up_folders(data: st.DataObject, tmp_path: Path) -> None:
    draw = data.draw
    library = byte_level() if draw(st.booleans()) else sentence_piece()
    in_json = draw(st.lists(st.tuples(TOKENS, FLAGS), max_size=3, unique_by=lambda one: one[0]))
    library.add_tokens([AddedToken(text, **flags) for text, flags in in_json])
    config: dict[str, object] = {**CLASS, **draw(st.sampled_from([{}, NAMES]))}
    for name in ("eos_token", "pad_token", "image_token"):
        config |= {name: draw(TOKENS)} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        config["additional_special_tokens"] = draw(st.lists(TOKENS, max_size=2, unique=True))
    ids = st.integers(250, 270)
    if draw(st.booleans()):
        listed = draw(st.dictionaries(ids, st.tuples(TOKENS, FLAGS), max_size=4))
        config["added_tokens_decoder"] = {
            str(i): {"content": text, **flags} for i, (text, flags) in listed.items()
        }
    files: dict[str, object] = {}
    if draw(st.booleans()):
        files["added_tokens"] = draw(st.dictionaries(TOKENS, ids, max_size=4))
    if draw(st.booleans()):
        named = draw(st.dictionaries(st.sampled_from(["bos_token", "pad_token"]), TOKENS))
        if draw(st.booleans()):
            named |= {"additional_special_tokens": draw(st.lists(TOKENS, max_size=2, unique=True))}
        files["special_tokens_map"] = named
    path = write_folder(tmp_path, library, config, **files)
    check_same(
        path, [*TEXTS, draw(st.lists(TOKENS).map(" ".join)), draw(st.lists(TOKENS).map("".join))]
    )


@pytest.mark.parametrize(
    ("names", "files", "words"),
    [
        ({"added_tokens_decoder": []}, {}, "tokenizer_config.json: added_tokens_decoder"),
        ({"added_tokens_decoder": {"x": MARK}}, {}, "does not hold ids as names"),
        ({"added_tokens_decoder": {"3": "<m>"}}, {}, 'tokens as objects with "content"'),
        ({"added_tokens_decoder": {"3": {**MARK, "lstrip": 1}}}, {}, "lstrip does not hold true"),
        ({"additional_special_tokens": "x"}, {}, "additional_special_tokens does not hold a list"),
        ({"bos_token": {"text": "x"}}, {}, "bos_token does not hold tokens as objects"),
        ({}, {"added_tokens": {"<m>": "3"}}, "added_tokens.json: <m> does not hold an id"),
        ({}, {"added_tokens": {"<m>": -1}}, "added_tokens.json: <m> does not hold an id"),
        ({}, {"added_tokens": []}, "added_tokens.json does not hold a JSON object"),
        ({}, {"special_tokens_map": {"pad_token": {}}}, "pad_token does not hold tokens"),
        ({"bos_token": "\ud800"}, {}, "bos_token does not hold tokens of valid Unicode"),
        ({"bos_token": "x" * 5_000}, {}, "tokens of at most 4,096 characters"),
        ({"added_tokens_decoder": {"3": {**MARK, "content": "\ud800"}}}, {}, "valid Unicode"),
        ({"added_tokens_decoder": {"1" * 5_000: MARK}}, {}, "does not hold ids as names"),
        ({}, {"added_tokens": {"\ud800": 3}}, "valid Unicode"),
    ],
)
def test_damaged_files(
    names: dict[str, object], files: dict[str, object], words: str, tmp_path: Path
) -> None:
    path = write_folder(tmp_path, byte_level(), names, **files)
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.open(path)
    assert words in str(caught.value)


def test_a_written_tokenizer_needs_no_files_beside_it(tmp_path: Path) -> None:
    listed = {**NAMES, "added_tokens_decoder": {"258": {**MARK, **PLAIN}}}
    ours = Tokenizer.open(write_folder(tmp_path, byte_level(), listed))
    alone = Library.from_str(ours.to_json())
    assert alone.encode("<|mark|>a").ids == [258, 66]


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_stands_before_a_text_comes_along_from_gguf_files(
    adds: bool, is_whole: bool, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "in", sentence_piece())
    metadata = read_vocabulary(folder, 264).metadata | {"tokenizer.ggml.add_bos_token": adds}
    if not is_whole:
        del metadata["tokenizer.huggingface.json"]
    write_gguf_file(tmp_path / "x.gguf", metadata, [], [])
    expected = [1, 7] if adds else [7]
    assert encode_prompt(Tokenizer.open(tmp_path / "x.gguf"), "to") == expected
    (tmp_path / "out").mkdir()
    copy_files(tmp_path / "x.gguf", tmp_path / "out")
    assert encode_prompt(Tokenizer.open(tmp_path / "out"), "to") == expected
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs("to")["input_ids"] == expected
