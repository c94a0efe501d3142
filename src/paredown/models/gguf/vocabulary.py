"""Converts a checkpoint's tokenizer to GGUF metadata for llama.cpp, plus the whole
tokenizer.json."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.fields import Fields
from paredown.models.files.json_file import MAX_TOKENIZER_BYTES, read_json_object
from paredown.models.gguf.checkpoint import is_gguf
from paredown.models.gguf.config import plain_value
from paredown.models.gguf.header import Value
from paredown.models.gguf.parts import read_metadata
from paredown.models.gguf.special_tokens import (
    BOS,
    BYTE,
    CONTROL,
    EOS,
    EOT,
    NORMAL,
    SEPARATOR,
    UNKNOWN,
    UNKNOWN_TYPE,
    UNUSED,
    USER_DEFINED,
    end_ids,
)
from paredown.models.gguf.tokenizer import (
    ADD_BOS,
    ADD_EOS,
    CHAT_TEMPLATE,
    JSON,
    MERGES,
    MODEL,
    PRE,
    SCORES,
    SPACE_PREFIX,
    TOKENS,
    TYPES,
)
from paredown.models.gguf.word_piece import word_piece_metadata
from paredown.models.gguf.words import (
    DIGIT_PATTERN,
    GPT2_PATTERN,
    LLAMA_CPP_RULES,
    LlamaCppRule,
)
from paredown.models.text.chat_templates import DEFAULT, ChatTemplates
from paredown.models.text.tokenizer import Tokenizer
from paredown.shown import quoted

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
# Below the score of every merge, for tokens that no merge makes.
_NO_SCORE = -1e9


@dataclass(frozen=True, kw_only=True)
class GGUFVocabulary:
    """The metadata. `notes` says where llama.cpp will differ from the tokenizer."""

    metadata: dict[str, Value]
    notes: tuple[str, ...] = ()


def read_vocabulary(path: Path, vocab_size: int) -> GGUFVocabulary:
    """Reads the vocabulary of the folder or GGUF file `path`, whose embedding has `vocab_size`
    rows. Raises CheckpointError for damaged files, and UnsupportedError for a tokenizer that
    llama.cpp has no equivalent of."""
    if is_gguf(path):
        stored = read_metadata(path)
        return GGUFVocabulary(
            metadata={key: value for key, value in stored.items() if key.startswith("tokenizer.")}
        )
    tokenizer = Tokenizer.open(path)
    library = json.loads(tokenizer.to_json())
    notes = _drop_rowless(library, path, vocab_size)
    model = library.get("model")
    if not isinstance(model, dict) or model.get("type") not in ("BPE", "WordPiece"):
        raise _unsupported("a model that is neither BPE nor WordPiece", model)
    tokens, types = _tokens(library, model, vocab_size)
    if model["type"] == "WordPiece":
        pieces = _word_piece(tokenizer, library, model, tokens)
        return GGUFVocabulary(metadata={TYPES: types, **pieces}, notes=tuple(notes))
    metadata: dict[str, Value] = {TOKENS: tokens, TYPES: types}
    rule = LlamaCppRule(pre="")
    if model.get("byte_fallback"):
        metadata |= _sentence_piece(library, model, tokens)
    else:
        rule = _word_rule(library, model)
        metadata |= {MODEL: "gpt2", PRE: rule.pre, MERGES: [" ".join(m) for m in _merges(model)]}
    special, lost = _special_tokens(path, tokenizer, tokens)
    metadata |= special
    try:
        metadata |= _chat_templates(tokenizer.chat_templates)
    except CheckpointError as error:
        notes.append(f"{error.what}, and is not written: {error.seen}")
    metadata[JSON] = json.dumps(library, ensure_ascii=False)
    notes += lost
    notes += [] if rule.difference is None else [rule.difference]
    return GGUFVocabulary(metadata=metadata, notes=tuple(notes))


def _word_piece(
    tokenizer: Tokenizer,
    library: Mapping[str, object],
    model: Mapping[str, object],
    tokens: list[str],
) -> dict[str, Value]:
    """Returns the metadata of BERT's tokenizer, with the tokens around a text."""
    found = word_piece_metadata(library, model, tokens)
    ends = tokenizer.prompt_prefix, tokenizer.prompt_suffix
    unknown = str(model.get("unk_token"))
    if found is None or [len(one) for one in ends] != [1, 1] or unknown not in tokens:
        raise _unsupported("pieces of words that are not put together as BERT's", model["type"])
    return {
        **found,
        MODEL: "bert",
        UNKNOWN: np.uint32(tokens.index(unknown)),
        BOS: np.uint32(ends[0][0]),
        SEPARATOR: np.uint32(ends[1][0]),
        ADD_BOS: True,
        JSON: json.dumps(library, ensure_ascii=False),
    }


def _drop_rowless(library: dict[str, object], path: Path, vocab_size: int) -> list[str]:
    """Removes tokens that only the files beside tokenizer.json name and for which the model has no
    row, mostly a padding token. Returns a note on them."""
    stored = read_json_object(path / "tokenizer.json", MAX_TOKENIZER_BYTES).get("added_tokens")
    own = {entry["id"] for entry in stored} if isinstance(stored, list) else set()
    added = library["added_tokens"]
    assert isinstance(added, list), "the tokenizer's library wrote it"
    rowless = [one for one in added if one["id"] >= vocab_size and one["id"] not in own]
    if not rowless:
        return []
    library["added_tokens"] = [one for one in added if one not in rowless]
    texts = ", ".join(one["content"] for one in rowless)
    return [f"tokens that the model has no row for are not written: {texts}"]


def _chat_templates(templates: ChatTemplates) -> dict[str, Value]:
    """Returns the default template under llama.cpp's key, and named ones under keys that extend
    it."""
    texts = templates.texts()
    names = [name for name in texts if name != DEFAULT]
    found: dict[str, Value] = {f"{CHAT_TEMPLATE}.{name}": texts[name] for name in names}
    if names:
        found[f"{CHAT_TEMPLATE}s"] = names
    return found | ({CHAT_TEMPLATE: texts[DEFAULT]} if DEFAULT in texts else {})


def _tokens(
    library: Mapping[str, object], model: Mapping[str, object], vocab_size: int
) -> tuple[list[str], np.ndarray]:
    """Returns one token for each row of the embedding, with its type."""
    vocabulary, added = model.get("vocab"), library.get("added_tokens")
    assert isinstance(vocabulary, dict), "the tokenizer's library read it"
    assert isinstance(added, list | None)
    texts = {token_id: text for text, token_id in vocabulary.items()}
    kinds = dict.fromkeys(texts, NORMAL)
    if model.get("byte_fallback"):
        kinds |= {i: BYTE for i, text in texts.items() if _BYTE_TOKEN.fullmatch(text)}
        unknown = model.get("unk_token")
        kinds |= {i: UNKNOWN_TYPE for i, text in texts.items() if text == unknown}
    for entry in added or []:
        texts[entry["id"]] = entry["content"]
        if kinds.get(entry["id"]) != UNKNOWN_TYPE:
            kinds[entry["id"]] = CONTROL if entry["special"] else USER_DEFINED
    if max(texts) >= vocab_size:
        seen = f"token {max(texts)}, {vocab_size} rows"
        raise _unsupported("more tokens than the table of embeddings has rows", seen)
    tokens = [texts.get(token_id, f"[PAD{token_id}]") for token_id in range(vocab_size)]
    types = [kinds.get(token_id, UNUSED) for token_id in range(vocab_size)]
    return tokens, np.array(types, np.int32)


def _word_rule(library: Mapping[str, object], model: Mapping[str, object]) -> LlamaCppRule:
    """Returns llama.cpp's rule for the words. Raises UnsupportedError if it has none."""
    if library.get("normalizer") not in (None, {"type": "NFC"}):
        raise _unsupported("a normalizer", library["normalizer"])
    pre = library.get("pre_tokenizer")
    parts = pre.get("pretokenizers", [pre]) if isinstance(pre, dict) else []
    patterns = tuple(one for part in parts for one in _patterns(part))
    rule = LLAMA_CPP_RULES.get((patterns, bool(model.get("ignore_merges"))))
    if rule is None:
        raise _unsupported("words that llama.cpp has no rule for", pre)
    return rule


def _patterns(part: object) -> list[str]:
    """Returns the patterns of one pre-tokenizer step, or a pattern that matches no rule where it
    has none."""
    match part:
        case {"type": "ByteLevel", "add_prefix_space": False, **rest}:
            return [GPT2_PATTERN] if rest.get("use_regex", True) else []
        case {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated", **rest}:
            return [""] if rest.get("invert", False) else [regex]
        case {"type": "Digits", "individual_digits": True}:
            return [DIGIT_PATTERN]
    return [""]


def _sentence_piece(
    library: Mapping[str, object], model: Mapping[str, object], tokens: list[str]
) -> dict[str, Value]:
    """Returns scores that follow the order of the merges: an earlier merge gets a higher score."""
    scores = dict.fromkeys(tokens, _NO_SCORE)
    for rank, merge in enumerate(_merges(model)):
        scores["".join(merge)] = max(scores["".join(merge)], -1.0 - rank)
    found: dict[str, Value] = {
        MODEL: "llama",
        PRE: "default",
        SCORES: np.array([scores[token] for token in tokens], np.float32),
        SPACE_PREFIX: _has_space_prefix(library),
    }
    unknown = model.get("unk_token")
    if unknown in tokens:
        found[UNKNOWN] = np.uint32(tokens.index(str(unknown)))
    return found


def _has_space_prefix(library: Mapping[str, object]) -> bool:
    normalizer, pre = library.get("normalizer"), library.get("pre_tokenizer")
    match normalizer, pre:
        case {"type": "Sequence", "normalizers": [{"type": "Prepend"}, {"type": "Replace"}]}, None:
            return True
        case {"type": "Sequence", "normalizers": [{"type": "Replace"}]}, None:
            return False
        case None, {"type": "Metaspace", "split": False, "prepend_scheme": str(scheme)}:
            return scheme != "never"
    raise _unsupported("words that llama.cpp has no rule for", [normalizer, pre])


def _merges(model: Mapping[str, object]) -> list[list[str]]:
    """Returns the merges as pairs; older files store texts with a space in between."""
    merges = model.get("merges")
    assert isinstance(merges, list), "the tokenizer's library read it"
    return [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges]


def _special_tokens(
    path: Path, tokenizer: Tokenizer, tokens: list[str]
) -> tuple[dict[str, Value], list[str]]:
    found: dict[str, Value] = {ADD_BOS: tokenizer.add_bos}
    if tokenizer.bos_token_id is not None:
        found[BOS] = np.uint32(tokenizer.bos_token_id)
    ids, suffix = set(tokenizer.eos_token_ids), tokenizer.prompt_suffix
    if len(suffix) > 1:
        raise _unsupported("several tokens behind a text", [tokens[one] for one in suffix])
    if suffix:
        # llama.cpp puts the first of the end tokens behind a text: embedders take its vector.
        found[ADD_EOS] = True
        ids |= {*suffix}
    configured = read_json_object(path / "config.json").get("eos_token_id")
    first = configured[0] if isinstance(configured, list) and configured else configured
    ordered = sorted(ids, key=lambda one: (one not in suffix, one != first, one))
    found |= {key: np.uint32(one) for key, one in zip((EOS, EOT), ordered, strict=False)}
    named = {key: plain_value(value) for key, value in found.items()}
    there = set(end_ids(tokens, Fields(named, str(path))))
    notes = []
    if lost := [str(one) for one in ordered if one not in there]:
        notes.append(f"GGUF names two tokens that end a text; not written: {', '.join(lost)}")
    if more := [repr(tokens[one]) for one in sorted(there - ids)]:
        notes.append(f"llama.cpp ends a text at {', '.join(more)} too")
    return found, notes


def _unsupported(what: str, seen: object) -> UnsupportedError:
    return UnsupportedError(
        f"the tokenizer cannot be written as GGUF: it has {what}",
        seen=quoted(seen, 200),
        remedy="Written are byte-level BPE in the words of GPT-2, Llama 3, Qwen2 and the packaged "
        "models, SentencePiece BPE, and BERT's WordPiece.",
    )
