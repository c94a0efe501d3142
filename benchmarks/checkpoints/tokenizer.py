"""A made-up byte-level BPE tokenizer of any vocabulary size, so that loading it costs what a real
one costs: as many tokens and almost as many merges, in tokenizer.json and in GGUF files alike."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Longest made-up token in bytes; published vocabularies have few longer ones.
MAX_TOKEN_CHARACTERS = 12


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """`tokens[i]` is token i in GPT-2's printable alphabet of bytes; `special` ids match no text.
    Tokens outside `merges` and the alphabet are special."""

    tokens: list[str]
    merges: list[tuple[str, str]]
    special: frozenset[int]


def byte_alphabet() -> list[str]:
    """GPT-2's printable character for each byte, in the order of GPT-2's vocabulary."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def make_vocabulary(vocab_size: int, special: frozenset[int], seed: int = 0) -> Vocabulary:
    """Each token after the alphabet joins two earlier ones, ids in `special` are left out."""
    generator = random.Random(seed)
    alphabet = byte_alphabet()
    names = {i: f"<|special_{i}|>" for i in special}
    plain: list[str] = []
    tokens: list[str] = []
    known: set[str] = set()
    merges: list[tuple[str, str]] = []
    while len(tokens) < vocab_size:
        if len(tokens) in names:
            tokens.append(names[len(tokens)])
            continue
        if len(plain) < len(alphabet):
            token = alphabet[len(plain)]
        else:
            pair = _new_pair(generator, plain, known)
            merges.append(pair)
            token = pair[0] + pair[1]
        plain.append(token)
        known.add(token)
        tokens.append(token)
    return Vocabulary(tokens=tokens, merges=merges, special=special)


def special_token_ids(config: Mapping[str, object]) -> frozenset[int]:
    """The beginning and the end of a text, as config.json has them."""
    token_ids = [config["bos_token_id"], config["eos_token_id"]]
    return frozenset(token_id for token_id in token_ids if isinstance(token_id, int))


def write_tokenizer(folder: Path, vocabulary: Vocabulary) -> None:
    """tokenizer.json and tokenizer_config.json."""
    added = [
        {
            "id": i,
            "content": vocabulary.tokens[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i in sorted(vocabulary.special)
    ]
    byte_level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **byte_level},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", **byte_level},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(vocabulary.tokens)},
            "merges": [list(pair) for pair in vocabulary.merges],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")


def _new_pair(generator: random.Random, plain: list[str], known: set[str]) -> tuple[str, str]:
    while True:
        first, second = generator.choice(plain), generator.choice(plain)
        token = first + second
        if len(token) <= MAX_TOKEN_CHARACTERS and token not in known:
            return first, second
