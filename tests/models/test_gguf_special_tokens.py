"""What llama.cpp derives where a file is silent: BOS from the rule of words, ends from texts."""

from pathlib import Path

import numpy as np
import pytest

from paredown.engine.prompt import encode_prompt
from paredown.errors import CheckpointError
from paredown.models.families.fields import Fields
from paredown.models.gguf.file import read_gguf, write_gguf_file
from paredown.models.gguf.header import Value
from paredown.models.gguf.special_tokens import END_TEXTS, EOS, EOT, end_ids
from paredown.models.text.tokenizer import Tokenizer

TOKENS = ["<s>", "</s>", "<|eot_id|>", "a", "b", "ab"]
CONTROL_TYPES = [3, 3, 3, 1, 1, 1]


def open_tokenizer(path: Path, tokens: list[str], types: list[int], **fields: Value) -> Tokenizer:
    """Byte-level BPE by the words of Llama 3; a field that is None is left out."""
    metadata: dict[str, Value | None] = {
        "model": "gpt2",
        "pre": "llama-bpe",
        "tokens": tokens,
        "token_type": np.array(types, np.int32),
        "merges": ["a b"],
        "bos_token_id": np.uint32(0),
        "eos_token_id": np.uint32(1),
        **fields,
    }
    kept = {f"tokenizer.ggml.{key}": one for key, one in metadata.items() if one is not None}
    write_gguf_file(path, kept, [], [])
    return Tokenizer.open(path)


@pytest.mark.parametrize(
    ("pre", "add_bos_token", "ids"),
    [
        ("llama-bpe", None, [0, 5]),
        ("llama3", None, [0, 5]),
        ("llama-v3", None, [0, 5]),
        ("tekken", None, [0, 5]),
        ("llama-bpe", False, [5]),
        ("gpt-2", None, [5]),
        ("gpt-2", True, [0, 5]),
    ],
)
def test_bos_where_the_file_does_not_say(
    pre: str, add_bos_token: bool | None, ids: list[int], tmp_path: Path
) -> None:
    tokenizer = open_tokenizer(
        tmp_path / "t.gguf", TOKENS, CONTROL_TYPES, pre=pre, add_bos_token=add_bos_token
    )
    assert encode_prompt(tokenizer, "ab") == ids


def test_without_a_rule_words_are_cut_by_llama_cpps_own(tmp_path: Path) -> None:
    named = open_tokenizer(tmp_path / "a.gguf", TOKENS, CONTROL_TYPES, pre="default")
    silent = open_tokenizer(tmp_path / "b.gguf", TOKENS, CONTROL_TYPES, pre=None)
    assert named.encode("ab ab") == silent.encode("ab ab")


@pytest.mark.parametrize("text", sorted(END_TEXTS))
@pytest.mark.parametrize("kind", [1, 3, 4])
def test_an_end_of_an_answer_is_known_by_its_text(text: str, kind: int, tmp_path: Path) -> None:
    """Whatever its type and id; it is matched whole in a text."""
    tokens = ["<s>", "<stop>", text, "a", "b", "ab"]
    tokenizer = open_tokenizer(tmp_path / "t.gguf", tokens, [3, 3, kind, 1, 1, 1])
    assert tokenizer.eos_token_ids == {1, 2}
    assert tokenizer.encode(f"ab{text}a") == [5, 2, 3]


def test_the_ends_of_all_keys_count(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(
        tmp_path / "t.gguf",
        ["<s>", "<stop>", "<turn>", "a", "b", "ab"],
        CONTROL_TYPES,
        eot_token_id=np.uint32(2),
        eom_token_id=np.uint32(4),
    )
    assert tokenizer.eos_token_ids == {1, 2, 4}


@pytest.mark.parametrize(
    ("tokens", "ends"),
    [
        (["x", "<|end|>", "<|return|>"], {0, 1, 2}),
        (["x", "<|end|>", "<|return|>", "<|call|>"], {0, 2, 3}),
        (["x", "<|end|>", "<|calls|>", "<|flush|>"], {0, 2, 3}),
        (["x", "</s>"], {0, 1}),
        (["x", "</s>", "<|tool_response>"], {0, 2}),
        (["x", "<fim_pad>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"], {0, 1, 2, 3}),
    ],
)
def test_texts_that_depend_on_others(tokens: list[str], ends: set[int]) -> None:
    assert set(end_ids(tokens, Fields({EOS: 0}))) == ends


def test_eos_comes_first() -> None:
    assert end_ids(["</s>", "a", "b"], Fields({EOS: 2, EOT: 1})) == [2, 1, 0]


@pytest.mark.parametrize("name", ["eos", "eot", "eom", "bos"])
def test_an_end_that_is_no_token_is_refused(name: str, tmp_path: Path) -> None:
    key = f"{name}_token_id"
    with pytest.raises(CheckpointError, match=f"{key}.*id below 6.*saw: 6"):
        open_tokenizer(tmp_path / "t.gguf", TOKENS, CONTROL_TYPES, **{key: np.uint32(6)})


def test_sentence_piece_has_its_usual_ids_where_the_file_names_none(tmp_path: Path) -> None:
    metadata: dict[str, Value] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "▁", "a"],
        "tokenizer.ggml.scores": np.zeros(5, np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3, 1, 1], np.int32),
    }
    write_gguf_file(tmp_path / "t.gguf", metadata, [], [])
    tokenizer = Tokenizer.open(tmp_path / "t.gguf")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (1, {2})
    assert encode_prompt(tokenizer, "a") == [1, 3, 4]


def test_named_templates_and_tokens_of_users(tmp_path: Path) -> None:
    tokens, types = [*TOKENS, "<think>"], [*CONTROL_TYPES, 4]
    named: dict[str, Value] = {
        "tokenizer.chat_template": "plain",
        "tokenizer.chat_templates": ["tool_use"],
        "tokenizer.chat_template.tool_use": "tools",
    }
    path = tmp_path / "t.gguf"
    open_tokenizer(path, tokens, types)
    write_gguf_file(path, {**read_gguf(path).metadata, **named}, [], [])
    tokenizer = Tokenizer.open(path)
    assert tokenizer.encode("a<think>b") == [3, 6, 4]
    assert tokenizer.chat_templates.texts() == {"default": "plain", "tool_use": "tools"}
