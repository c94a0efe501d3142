"""Words of GGUF files that users of comparable tools lost: tokens that the model's makers defined,
and named chat templates."""

import json
import random
import unicodedata
from pathlib import Path

import pytest
import tokenizers
from transformers import AutoTokenizer

from fakes.gguf_tokenizers import CORPUS, write_byte_level
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.tokenizer import JSON, TYPES
from paredown.models.gguf.vocabulary import read_vocabulary
from paredown.models.gguf.words import WORD_RULES
from paredown.models.text.tokenizer import Tokenizer

USER_DEFINED = 4
NAMED = [
    {"name": "default", "template": "D{{ messages[0].content }}"},
    {"name": "tool_use", "template": "T{{ tools | length }}{{ messages[0].content }}"},
]
USER: list[dict[str, object]] = [{"role": "user", "content": "hi"}]
TOOL: dict[str, object] = {"type": "function", "function": {"name": "f", "parameters": {}}}


def write_folder(folder: Path) -> int:
    """A tokenizer with a `<think>` that is no special token, and two templates."""
    rule = WORD_RULES["qwen2"]
    write_byte_level(folder, rule.patterns, rule.ignores_merges)
    file = str(folder / "tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(file)
    tokenizer.add_tokens([tokenizers.AddedToken("<think>", special=False, normalized=False)])
    tokenizer.save(file)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": NAMED}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return int(tokenizer.get_vocab_size(with_added_tokens=True))


def texts() -> list[str]:
    """200 of them: words, accents composed and not, and the token in the midst of them."""
    draw = random.Random(0)
    words = [word for text in CORPUS for word in text.split()] + ["é", "naïve", "<think>", "  "]
    found = ["a<think>b", "<think>", " <think> ", "<thin<think>k>"]
    while len(found) < 200:
        text = draw.choice(["", " "]).join(draw.choices(words, k=6))
        found.append(unicodedata.normalize(draw.choice(["NFC", "NFD"]), text))
    return found


@pytest.mark.parametrize("whole", [True, False])
def test_e15_ids_of_a_file_are_those_of_its_folder(whole: bool, tmp_path: Path) -> None:
    """With tokenizer.json in the file, and from llama.cpp's parts alone."""
    size = write_folder(tmp_path)
    metadata = dict(read_vocabulary(tmp_path, size).metadata)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    (think,) = theirs.encode("<think>", add_special_tokens=False)
    assert metadata[TYPES][think] == USER_DEFINED  # type: ignore[index]
    if not whole:
        del metadata[JSON]
    write_gguf_file(tmp_path / "t.gguf", metadata, [], [])
    tokenizer = Tokenizer.open(tmp_path / "t.gguf")
    middle = tokenizer.encode("a<think>b")
    assert len(middle) == 3
    assert middle[1] == think
    for text in texts():
        ids = theirs.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False)


def test_e15_tools_choose_the_template_of_their_name(tmp_path: Path) -> None:
    size = write_folder(tmp_path)
    write_gguf_file(tmp_path / "t.gguf", dict(read_vocabulary(tmp_path, size).metadata), [], [])
    for path in (tmp_path, tmp_path / "t.gguf"):
        tokenizer = Tokenizer.open(path)
        assert tokenizer.render_chat(USER) == "Dhi"
        assert tokenizer.render_chat(USER, [TOOL]) == "T1hi"
