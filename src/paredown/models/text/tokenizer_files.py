"""TokenizerFiles: reads the files beside tokenizer.json by the rules of Transformers 5.

tokenizer_config.json decides. If it has no `added_tokens_decoder`, special_tokens_map.json
overrides it and added_tokens.json counts as well. The ids they give only define an order: a token
that tokenizer.json knows keeps its id, and others are appended.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from paredown.errors import CheckpointError
from paredown.models.files.json_file import read_optional_json_object
from paredown.models.text.token_texts import MAX_TOKEN_CHARS
from paredown.models.text.tokenizer_library import AddedToken, TokenizerLibrary
from paredown.shown import quoted

CONFIG = "tokenizer_config.json"
# In tokenizer_config.json, added tokens by id.
LISTED = "added_tokens_decoder"
SPECIAL_MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
# Lists of special tokens without names of their own; the second is the older name.
EXTRA, OLD_EXTRA = "extra_special_tokens", "additional_special_tokens"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# The version of Transformers whose rules are followed.
_TRANSFORMERS = (5, 23)
_VERSIONED = re.compile(r"tokenizer\.(\d{1,6}(?:\.\d{1,6}){0,5})\.json", re.ASCII)
_ID = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class TokenizerFiles:
    """`config`          tokenizer_config.json, as far as special_tokens_map.json leaves it
    `special_tokens`  the texts of the special tokens that have names
    `listed`          tokens of the vocabulary with their properties; their ids say the order
    `is_complete`     whether that is the list that counts, tokenizer.json's own tokens among it
    `named`           special tokens, which the vocabulary has even where nothing lists them
    """

    config: Mapping[str, object]
    special_tokens: Mapping[str, str]
    listed: Mapping[int, AddedToken]
    is_complete: bool
    named: tuple[AddedToken, ...]

    @property
    def splits_special_tokens(self) -> bool:
        """Returns whether special tokens in a text are split like ordinary text."""
        return self.config.get("split_special_tokens") is True

    def cleans_up(self, model: str) -> bool:
        """Returns whether decoding drops spaces before punctuation; `model` is the kind in
        tokenizer.json. BPE texts keep their own spaces, so there Transformers obeys only the second
        name."""
        if model == "BPE":
            forced = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
            return self._is_cleaned and self.config.get(forced) is True
        return self._is_cleaned

    def tokens_said(self) -> str:
        """All that changes what a text becomes, or tokens become, in JSON: not the templates."""
        return json.dumps(
            {
                "splits": self.splits_special_tokens,
                "cleans_up": [self.cleans_up(model) for model in ("BPE", "Unigram")],
                "special": dict(self.special_tokens),
                "is_complete": self.is_complete,
                "listed": {key: _properties(self.listed[key]) for key in sorted(self.listed)},
                "named": [_properties(token) for token in self.named],
            }
        )

    @property
    def _is_cleaned(self) -> bool:
        return self.config.get("clean_up_tokenization_spaces") is True


def _properties(token: AddedToken) -> list[object]:
    return [token.content, *(getattr(token, name) for name in _FLAGS)]


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Reads the files beside the folder's tokenizer.json. Raises CheckpointError."""
    config = read_optional_json_object(folder / CONFIG)
    where = f"{folder / CONFIG}"
    extra = _extra(config, where)
    is_complete = LISTED in config
    if is_complete:
        listed = _listed(config[LISTED], where)
    else:
        special_map = read_optional_json_object(folder / SPECIAL_MAP)
        where = f"{folder / SPECIAL_MAP} and {CONFIG}"
        is_unsaid = not {EXTRA, OLD_EXTRA} & set(config)
        extra += _extra({EXTRA: special_map.get(EXTRA)}, where)
        special = {token.content for token in extra}
        if is_unsaid and EXTRA not in special_map:
            extra += _extra(special_map, where)
        config = config | {k: v for k, v in special_map.items() if k not in (EXTRA, OLD_EXTRA)}
        config |= _extra_names(special_map)
        usual = {name: config[name] for name in NAMED if name in config}
        special |= {token.content for token in _named(usual, where).values()}
        listed = _older_list(folder / ADDED, special)
    names = _named(config, where)
    return TokenizerFiles(
        config=config,
        special_tokens={name: token.content for name, token in names.items()},
        listed=listed,
        is_complete=is_complete,
        named=(*names.values(), *extra),
    )


def named_files(config: Mapping[str, object], where: str) -> TokenizerFiles:
    """Reads tokenizer_config.json alone: a GGUF file lists all its tokens."""
    return TokenizerFiles(
        config=config,
        special_tokens={name: one.content for name, one in _named(config, where).items()},
        listed={},
        is_complete=True,
        named=(),
    )


def add_tokens(library: TokenizerLibrary, files: TokenizerFiles) -> None:
    """Adds the tokens of the files beside tokenizer.json to its vocabulary. Raises
    CheckpointError."""
    known = library.added_tokens
    listed = files.listed if files.is_complete else {**files.listed, **known}
    tokens = [listed[token_id] for token_id in sorted(listed)]
    texts = {token.content for token in [*known.values(), *tokens]}
    for token in files.named:
        if token.content not in texts:
            texts.add(token.content)
            tokens.append(token)
    special = set(files.special_tokens.values())
    for token in tokens:
        token.special = token.special or token.content in special
    library.add_tokens(tokens, splits_special=files.splits_special_tokens)


def tokenizer_file(folder: Path, config: Mapping[str, object]) -> Path:
    """Returns the path of tokenizer.json, or of the entry in `fast_tokenizer_files` for the highest
    version of Transformers up to the one followed here."""
    listed = config.get("fast_tokenizer_files")
    found = {}
    for name in listed if isinstance(listed, list) else []:
        if isinstance(name, str) and (version := _VERSIONED.fullmatch(name)):
            found[tuple(map(int, version[1].split(".")))] = name
    best = max((version for version in found if version <= _TRANSFORMERS), default=None)
    return folder / ("tokenizer.json" if best is None else found[best])


def _named(config: Mapping[str, object], where: str) -> dict[str, AddedToken]:
    """Returns the named special tokens: the usual ones, then this model's own. The latter are all
    texts under a name that ends in _token and those in `extra_special_tokens`."""
    own = [name for name in config if name.endswith("_token") and name not in NAMED]
    found = {
        name: config[name] for name in (*NAMED, *own) if isinstance(config.get(name), str | dict)
    }
    found |= _extra_names(config)
    return {name: _special(value, f"{where}: {name}") for name, value in found.items()}


def _extra_names(config: Mapping[str, object]) -> dict[str, object]:
    extra = config.get(EXTRA)
    return extra if isinstance(extra, dict) else {}


def _extra(config: Mapping[str, object], where: str) -> list[AddedToken]:
    name = EXTRA if config.get(EXTRA) else OLD_EXTRA
    value = config.get(name)
    if value is None or isinstance(value, dict):
        return []
    if not isinstance(value, list):
        raise _wrong(f"{where}: {name}", value, "a list of tokens")
    return [_special(entry, f"{where}: {name}") for entry in value]


def _listed(value: object, where: str) -> dict[int, AddedToken]:
    where = f"{where}: {LISTED}"
    if not isinstance(value, dict):
        raise _wrong(where, value, "an object of tokens by their ids")
    found = {}
    for token_id, entry in value.items():
        if _ID.fullmatch(token_id) is None:
            raise _wrong(where, token_id, "ids as names")
        found[int(token_id)] = _token(entry, where)
    return found


def _older_list(path: Path, special: Collection[str]) -> dict[int, AddedToken]:
    """Reads added_tokens.json, which holds ids by text."""
    found = {}
    for text, token_id in read_optional_json_object(path).items():
        if type(token_id) is not int or token_id < 0:
            raise _wrong(f"{path}: {text}", token_id, "an id")
        is_special = text in special
        _check_text(text, f"{path}")
        found[token_id] = AddedToken(text, normalized=not is_special, special=is_special)
    return found


def _special(value: object, where: str) -> AddedToken:
    """Parses a special token from a text or an object."""
    if isinstance(value, str):
        _check_text(value, where)
        return AddedToken(value, special=True)
    token = _token(value, where)
    token.special = True
    return token


def _token(value: object, where: str) -> AddedToken:
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise _wrong(where, value, 'tokens as objects with "content"')
    _check_text(value["content"], where)
    flags = {name: value[name] for name in _FLAGS if name in value}
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise _wrong(f"{where}: {name}", flag, "true or false")
    return AddedToken(value["content"], **flags)


def _check_text(text: str, where: str) -> None:
    if len(text) > MAX_TOKEN_CHARS:
        raise _wrong(where, text, f"tokens of at most {MAX_TOKEN_CHARS:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _wrong(where, text, "tokens of valid Unicode") from error


def _wrong(where: str, seen: object, wanted: str) -> CheckpointError:
    return CheckpointError(
        f"{where} does not hold {wanted}",
        seen=quoted(seen, 100),
        remedy="Correct the file, or download it again.",
    )
