"""Converts the tokenizer in a GGUF file's metadata to the files of a Hugging Face folder.

`tokenizer.ggml.*` is what llama.cpp reads: tokens with types and merges ("gpt2", byte-level BPE,
cut into words by a rule of llama.cpp's own that `pre` names), tokens with scores ("llama", that is
SentencePiece's BPE), pieces of words ("bert"), or tokens of a unigram model ("t5").
`tokenizer.huggingface.json`, if present, is the whole tokenizer.json and wins (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import json
from collections.abc import Mapping

import numpy as np

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.fields import Fields
from paredown.models.gguf.config import plain_value
from paredown.models.gguf.header import Value
from paredown.models.gguf.special_tokens import (
    BOS,
    CONTROL,
    EOS,
    NORMAL,
    SEPARATOR,
    UNKNOWN,
    UNKNOWN_TYPE,
    USER_DEFINED,
    USUAL_IDS,
    end_ids,
    matched_types,
    token_id,
)
from paredown.models.gguf.unigram import unigram
from paredown.models.gguf.word_piece import SPACE, word_piece
from paredown.models.gguf.words import MISSING, WORD_RULES, WordRule
from paredown.shown import quoted, shown

JSON = "tokenizer.huggingface.json"
CHAT_TEMPLATE = "tokenizer.chat_template"
ADD_BOS, ADD_EOS = "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"
CHARSMAP = "tokenizer.ggml.precompiled_charsmap"
MODEL, PRE, TOKENS, SCORES, TYPES, MERGES, SPACE_PREFIX = (
    f"tokenizer.ggml.{name}"
    for name in (
        "model", "pre", "tokens", "scores", "token_type", "merges", "add_space_prefix",
    )
)  # fmt: skip
# The largest known vocabulary has 0.27 million tokens; the longest known token has 512 characters.
MAX_TOKENS = 1 << 21
MAX_TOKEN_CHARS = 4_096
MAX_MERGES = 1 << 22
# SentencePiece files have no merges, so every way to cut a token in two is tried. This bounds the
# characters that are cut; Llama 2 needs 1 million.
_MAX_CUT_CHARS = 400_000_000
_MAX_MERGE_CHARS = 50_000_000
_REMEDY = "Convert the model to GGUF again, or download the file again."


def hugging_face_files(metadata: Mapping[str, Value], where: str) -> dict[str, str]:
    """Returns tokenizer.json, tokenizer_config.json and generation_config.json. Raises
    CheckpointError for incomplete metadata, and UnsupportedError for an unknown tokenizer."""
    fields = Fields(
        {key: plain_value(value) for key, value in metadata.items() if key not in _LARGE}, where
    )
    tokens = _strings(metadata, TOKENS, where)
    _check_tokens(tokens, where)
    config: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    numbered: dict[str, object] = {}
    usual = USUAL_IDS.get(fields.text(MODEL), {})
    known = {key: one for key, one in usual.items() if one < len(tokens)}
    fields = Fields({**known, **fields.config}, where)
    for name, key in (("bos", BOS), ("eos", EOS), ("unk", UNKNOWN)):
        if fields.config.get(key) is not None:
            found = token_id(fields, key, len(tokens))
            config[f"{name}_token"] = tokens[found]
            if name == "bos":
                numbered["bos_token_id"] = found
    numbered["eos_token_id"] = end_ids(tokens, fields)
    if fields.text(MODEL) == "bert" and fields.config.get(SEPARATOR) is not None:
        # llama.cpp puts these around every text.
        config["eos_token"] = tokens[token_id(fields, SEPARATOR, len(tokens))]
        config["add_eos_token"] = True
    config["add_bos_token"] = fields.flag(ADD_BOS, _adds_bos(fields))
    if fields.flag(ADD_EOS, fields.text(MODEL) == "t5"):
        config["add_eos_token"] = True
    templates = _chat_templates(fields)
    if templates is not None:
        config["chat_template"] = templates
    if JSON in metadata:
        tokenizer = fields.text(JSON)
    else:
        tokenizer = json.dumps(_tokenizer(metadata, tokens, fields), ensure_ascii=False)
    return {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": json.dumps(config, indent=2) + "\n",
        "generation_config.json": json.dumps(numbered, indent=2) + "\n",
    }


def _chat_templates(fields: Fields) -> object:
    """Returns the templates as in tokenizer_config.json: one text, or several with names. The
    unnamed one is the default."""
    named = {
        key.removeprefix(f"{CHAT_TEMPLATE}."): fields.text(key)
        for key in fields.config
        if key.startswith(f"{CHAT_TEMPLATE}.")
    }
    default = fields.text(CHAT_TEMPLATE) if CHAT_TEMPLATE in fields.config else None
    if not named:
        return default
    templates = named if default is None else {"default": default, **named}
    return [{"name": name, "template": text} for name, text in templates.items()]


def _adds_bos(fields: Fields) -> bool:
    """Returns the default for files that do not say whether a text begins with bos."""
    return BOS in USUAL_IDS.get(fields.text(MODEL), {}) or _word_rule(fields).adds_bos


_LARGE = {TOKENS, SCORES, TYPES, MERGES, CHARSMAP}
# Types of the tokens that are matched whole in a text.
_MATCHED = (CONTROL, USER_DEFINED, UNKNOWN_TYPE)


def _tokenizer(
    metadata: Mapping[str, Value], tokens: list[str], fields: Fields
) -> dict[str, object]:
    """Builds tokenizer.json from the parts that llama.cpp reads."""
    _check_different(tokens, fields.where)
    types = _numbers(metadata, TYPES, fields.where, len(tokens), NORMAL)
    types = matched_types(tokens, types)
    kind = fields.text(MODEL)
    if kind == "gpt2":
        parts = _byte_level(metadata, tokens, fields)
    elif kind == "llama":
        parts = _sentence_piece(metadata, tokens, fields)
    elif kind == "bert":
        named = [key for key in (BOS, SEPARATOR) if fields.config.get(key) is not None]
        ends = [token_id(fields, key, len(tokens)) for key in named]
        parts = word_piece(tokens, _unknown(tokens, fields), ends, fields)
    elif kind == "t5":
        scores = _numbers(metadata, SCORES, fields.where, len(tokens), 0.0).tolist()
        unknown_id = token_id(fields, UNKNOWN, len(tokens))
        parts = unigram(tokens, scores, unknown_id, metadata.get(CHARSMAP), fields)
    else:
        raise UnsupportedError(
            f"{fields.where} has a tokenizer that is not read here",
            seen=kind,
            remedy="Known are gpt2 (byte-level BPE), llama (SentencePiece BPE), bert (WordPiece), "
            "t5 (unigram) "
            f"and {JSON}.",
        )
    added = [
        {
            "id": place,
            "content": tokens[place],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": bool(types[place] != USER_DEFINED),
        }
        for place in np.flatnonzero(np.isin(types, _MATCHED)).tolist()
    ]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts}


def _byte_level(
    metadata: Mapping[str, Value], tokens: list[str], fields: Fields
) -> dict[str, object]:
    pre = fields.text(PRE, MISSING)
    if pre not in WORD_RULES:
        raise UnsupportedError(
            f"{fields.where} cuts text into words by a rule that is not known here",
            seen=f"{PRE} {quoted(pre)}",
            remedy=f"Known rules: {', '.join(WORD_RULES)}; or a file with {JSON}.",
        )
    rule = _word_rule(fields)
    # A vocabulary of single bytes has no merges, but must say so.
    texts = metadata.get(MERGES)
    if not isinstance(texts, list):
        texts = _strings(metadata, MERGES, fields.where)
    merges = [merge.split(" ") for merge in texts]
    _check_merges(merges, set(tokens), fields.where)
    splits = [
        {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False}
        for one in rule.patterns
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*splits, {**byte_level, "use_regex": False}],
        },
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": _bpe(tokens, merges, ignore_merges=rule.ignores_merges),
    }


def _word_rule(fields: Fields) -> WordRule:
    """Returns the word rule that the file names, or llama.cpp's default."""
    return WORD_RULES.get(fields.text(PRE, MISSING), WORD_RULES[MISSING])


def _sentence_piece(
    metadata: Mapping[str, Value], tokens: list[str], fields: Fields
) -> dict[str, object]:
    """Returns a BPE model. SentencePiece joins the neighbours whose union has the highest score, so
    the merges are all ways to cut a token in two, ordered by its score."""
    scores = _numbers(metadata, SCORES, fields.where, len(tokens), 0.0)
    merges = _ways_to_cut(tokens, scores.tolist(), fields.where)
    normalizers: list[dict[str, object]] = [
        {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    ]
    decoders: list[dict[str, object]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if fields.flag(SPACE_PREFIX, True):
        normalizers.insert(0, {"type": "Prepend", "prepend": SPACE})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    has_unknown = fields.config.get(UNKNOWN) is not None
    unknown = tokens[token_id(fields, UNKNOWN, len(tokens))] if has_unknown else None
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            **_bpe(tokens, merges, ignore_merges=False),
            "unk_token": unknown,
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


def _ways_to_cut(tokens: list[str], scores: list[float], where: str) -> list[list[str]]:
    """Returns the merges in order. Raises CheckpointError if the tokens have too many ways to be
    cut."""
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    ranked: list[tuple[float, int, int, list[str]]] = []
    num_read = num_made = 0
    for token, score in zip(tokens, scores, strict=True):
        num_read += len(token) ** 2
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                ranked.append((-score, ids[left], ids[right], [left, right]))
                num_made += len(token)
        if num_read > _MAX_CUT_CHARS or num_made > _MAX_MERGE_CHARS:
            raise CheckpointError(
                f"{where}: too many ways to cut the tokens into others",
                seen=f"{len(ranked):,} merges of {num_made:,} characters",
                remedy=_REMEDY,
            )
    ranked.sort()
    return [merge for *_, merge in ranked]


def _unknown(tokens: list[str], fields: Fields) -> str:
    """Returns the token for unknown words. Raises CheckpointError where the file names none."""
    return tokens[token_id(fields, UNKNOWN, len(tokens))]


def _bpe(tokens: list[str], merges: list[list[str]], *, ignore_merges: bool) -> dict[str, object]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignore_merges,
        "vocab": {token: token_id for token_id, token in enumerate(tokens)},
        "merges": merges,
    }


def _check_tokens(tokens: list[str], where: str) -> None:
    """Raises CheckpointError for too many or too long tokens."""
    longest = max(map(len, tokens))
    if len(tokens) > MAX_TOKENS or longest > MAX_TOKEN_CHARS:
        raise CheckpointError(
            f"{where}: {TOKENS} is longer than that of any tokenizer",
            seen=f"{len(tokens):,} tokens of up to {longest:,} characters; at most "
            f"{MAX_TOKENS:,} of {MAX_TOKEN_CHARS:,}",
            remedy=_REMEDY,
        )


def _check_different(tokens: list[str], where: str) -> None:
    first: dict[str, int] = {}
    for place, token in enumerate(tokens):
        if first.setdefault(token, place) != place:
            raise CheckpointError(
                f"{where}: a token occurs twice in {TOKENS}",
                seen=f"{token!r} at {first[token]} and {place}",
                remedy=_REMEDY,
            )


def _check_merges(merges: list[list[str]], tokens: set[str], where: str) -> None:
    if len(merges) > MAX_MERGES:
        raise CheckpointError(
            f"{where}: {MERGES} is longer than that of any tokenizer",
            seen=f"{len(merges):,}, at most {MAX_MERGES:,}",
            remedy=_REMEDY,
        )
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= tokens:
            raise CheckpointError(
                f"{where}: {MERGES} joins what are not tokens",
                seen=shown(" ".join(merge), 200),
                remedy=_REMEDY,
            )


def _strings(metadata: Mapping[str, Value], key: str, where: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not value:
        raise CheckpointError(
            f"{where} lacks {key}, a list of strings",
            seen="nothing" if value is None else type(value).__name__,
            remedy=_REMEDY,
        )
    return value


def _numbers(
    metadata: Mapping[str, Value], key: str, where: str, size: int, default: float
) -> np.ndarray:
    value = metadata.get(key)
    if value is None:
        return np.full(size, default)
    if not isinstance(value, np.ndarray) or len(value) != size or not np.isfinite(value).all():
        raise CheckpointError(
            f"{where}: {key} does not have one number for each token",
            seen=f"{len(value)} values" if isinstance(value, list | np.ndarray) else value,
            remedy=_REMEDY,
        )
    return value
