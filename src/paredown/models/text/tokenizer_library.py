"""TokenizerLibrary: the only user of the `tokenizers` library.

Errors of the library become ours, and so do its panics, which are not Exceptions. A tokenizer's
regular expressions may backtrack without end while the library holds the GIL. If their time may
exceed linear, they run in a process that can be stopped.
"""

import array
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tokenizers
from tokenizers import AddedToken

from paredown.errors import CheckpointError, RequestError
from paredown.models.text.confined_process import (
    ConfinedProcess,
    Confinement,
    LimitError,
    NoProcessError,
    NotStartedError,
    ProgramError,
)
from paredown.models.text.marked_text import MarkedText
from paredown.models.text.token_texts import MAX_TOKEN_CHARS
from paredown.models.text.tokenizer_bounds import (
    MAX_MARK_CHARS,
    MAX_UNIGRAM_CHARS,
    MAX_WORD_CHARS,
    check_before_load,
    is_linear_decoder,
    is_linear_normalizer,
    is_linear_pre_tokenizer,
)
from paredown.models.text.tokenizer_program import (
    DECODE,
    DECODE_ALL,
    ENCODE,
    ID_TYPE,
    MARKED,
    PAIR,
    SURROUND,
)
from paredown.units import GIBI

__all__ = ["AddedToken", "TokenizerLibrary"]

# Texts of this length take 2 ms. From here on, encoding releases the GIL for other threads.
LONG_TEXT_CHARS = 4_000
_CONFINEMENT = Confinement(
    target="paredown.models.text.tokenizer_program:make_tokenizer",
    setup_cpu_s=60.0,
    max_memory_bytes=4 * GIBI,
)
# Processor time for a text, and per character; usual tokenizers take 1 s for a million characters.
_CPU_S, _CPU_S_PER_CHAR = 0.5, 5e-6
# The same for decoding, where 0.2 million tokens take 0.05 s.
_DECODE_CPU_S, _DECODE_CPU_S_PER_TOKEN = 0.25, 5e-6
_MARKS = ("continuing_subword_prefix", "end_of_word_suffix")
T = TypeVar("T")


class TokenizerLibrary:
    """A loaded tokenizer.json. `where` names it in messages."""

    def __init__(self, library: tokenizers.Tokenizer, where: str) -> None:
        self._library = library
        self._where = where
        self._process: ConfinedProcess | None = None
        # Tokens that were found to be no longer than tokens are.
        self._short: set[int] = set()
        # Its parts as tokenizer.json has them.
        self.normalizer_description = _description(library.normalizer)
        self.pre_tokenizer_description = _description(library.pre_tokenizer)
        self.decoder_description = _description(library.decoder)
        self._encodes_here = (
            is_linear_normalizer(self.normalizer_description)
            and is_linear_pre_tokenizer(self.pre_tokenizer_description)
            and _is_linear_model(library)
        )
        self._decodes_here = is_linear_decoder(self.decoder_description)

    @classmethod
    def parse(cls, data: bytes, where: str) -> "TokenizerLibrary":
        """Loads `data`, JSON in UTF-8; as a str, megabytes would be decoded and encoded again.
        Raises CheckpointError."""
        check_before_load(data, where)

        def load() -> TokenizerLibrary:
            library = tokenizers.Tokenizer.from_buffer(data)
            library.no_truncation()
            library.no_padding()
            return cls(library, where)

        return _loading(load, where)

    @property
    def encodes_here(self) -> bool:
        """Returns whether texts are encoded in this process, in time linear in their length."""
        return self._encodes_here

    @property
    def model_kind(self) -> str:
        """Returns the kind of its model: BPE, Unigram, WordPiece or WordLevel."""
        return type(self._library.model).__name__

    @property
    def has_byte_fallback(self) -> bool:
        """Returns whether a BPE model writes unknown characters as bytes."""
        return bool(self._library.model.byte_fallback)

    @property
    def vocab_size(self) -> int:
        """Returns the number of tokens, added ones too."""
        size: int = self._library.get_vocab_size(with_added_tokens=True)
        return size

    @property
    def vocabulary(self) -> dict[str, int]:
        """Returns the ids of all tokens, added ones too; a new dict at each call."""
        entries: dict[str, int] = self._library.get_vocab(with_added_tokens=True)
        return entries

    @property
    def added_tokens(self) -> dict[int, AddedToken]:
        found: dict[int, AddedToken] = self._library.get_added_tokens_decoder()
        return found

    @property
    def num_around(self) -> int:
        """Returns how many tokens the post-processor puts around a text."""
        count: int = self._library.num_special_tokens_to_add(is_pair=False)
        return count

    def add_tokens(self, tokens: Sequence[AddedToken], *, splits_special: bool) -> None:
        """Adds tokens to the vocabulary; `splits_special` says whether special tokens in a text are
        split like ordinary text. Raises CheckpointError."""

        def add() -> None:
            self._library.add_tokens(list(tokens))
            self._library.encode_special_tokens = splits_special

        _loading(add, self._where)

    def id_to_token(self, token_id: int, /) -> str | None:
        token: str | None = self._library.id_to_token(token_id)
        return token

    def token_to_id(self, token: str) -> int | None:
        found: int | None = self._library.token_to_id(token)
        return found

    def to_json(self) -> str:
        text: str = self._library.to_str()
        return text

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, which must be valid Unicode. Raises RequestError."""
        if not self._encodes_here:
            ids = array.array(ID_TYPE, self._ask(ENCODE + text.encode(), _encode_cpu_s(text)))
            return ids.tolist()
        try:
            if len(text) < LONG_TEXT_CHARS:
                found = self._library.encode(text, add_special_tokens=False)
            else:
                # Gives the same ids without the GIL, in the library's own threads. Short texts do
                # not go there, because they would queue behind long ones.
                found = self._library.encode_batch_fast([text], add_special_tokens=False)[0]
        except BaseException as error:
            raise _failed(error, self._where) from error
        of_text: list[int] = found.ids
        return of_text

    def encode_marked(self, text: str, letters: Mapping[str, str]) -> list[int]:
        """Returns the ids of a text in which each key of `letters`, a character, stands for its
        value: a control token that is only text (models/text/marked_text.py). Raises
        RequestError."""
        if not self._encodes_here:
            request = MARKED + json.dumps([text, dict(letters)]).encode()
            return array.array(ID_TYPE, self._ask(request, _encode_cpu_s(text))).tolist()
        try:
            return MarkedText(self._library).encode(text, letters)
        except BaseException as error:
            raise _failed(error, self._where) from error

    def encode_whole(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the ids of a text with those that the post-processor adds, and a flag for each id
        that was added. Raises RequestError."""
        if not self._encodes_here:
            ids, mask = json.loads(self._ask(SURROUND + text.encode(), _encode_cpu_s(text)))
            return ids, mask
        try:
            whole = self._library.encode(text, add_special_tokens=True)
        except BaseException as error:
            raise _failed(error, self._where) from error
        return whole.ids, whole.special_tokens_mask

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int], list[int | None]]:
        """Returns the ids of two texts in one with those that the post-processor adds, the segment
        of each id, and the text that it belongs to (0, 1 or None). Raises RequestError."""
        if not self._encodes_here:
            request = PAIR + json.dumps([first, second]).encode()
            ids, types, owners = json.loads(self._ask(request, _encode_cpu_s(first + second)))
            return ids, types, owners
        try:
            whole = self._library.encode(first, second, add_special_tokens=True)
        except BaseException as error:
            raise _failed(error, self._where) from error
        return whole.ids, whole.type_ids, whole.sequence_ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        """Returns the text of the ids. Raises RequestError."""
        try:
            self._check_lengths(ids)
            if self._decodes_here:
                text: str = self._library.decode(ids, skip_special_tokens=skip_special_tokens)
                return text
            packed = array.array(ID_TYPE, ids).tobytes()
        except BaseException as error:
            raise _failed(error, self._where) from error
        kind = DECODE if skip_special_tokens else DECODE_ALL
        cpu_s = _DECODE_CPU_S + _DECODE_CPU_S_PER_TOKEN * len(ids)
        return self._ask(kind + packed, cpu_s).decode()

    def _check_lengths(self, ids: list[int]) -> None:
        """Raises ValueError for a token that is longer than that of any tokenizer: a reply may
        hold it hundreds of times."""
        unseen = set(ids) - self._short
        for token_id in unseen:
            token = self._library.id_to_token(token_id)
            if token is not None and len(token) > MAX_TOKEN_CHARS:
                raise ValueError(f"token {token_id} has {len(token):,} characters")
        self._short |= unseen

    def _ask(self, request: bytes, cpu_s: float) -> bytes:
        if self._process is None:
            splits = b"1" if self._library.encode_special_tokens else b"0"
            self._process = ConfinedProcess(_CONFINEMENT, splits + self.to_json().encode())
        try:
            return self._process.ask(request, cpu_s=cpu_s)
        except LimitError as error:
            raise RequestError(
                "the model's tokenizer was stopped: it came to a limit",
                seen=error,
                remedy="Send a shorter text. A tokenizer that stops at short ones too is damaged, "
                "or hostile: use another model.",
            ) from error
        except NotStartedError as error:
            raise NoProcessError("the model's tokenizer", error) from error
        except ProgramError as error:
            raise _failed(error, self._where) from error


def _is_linear_model(library: tokenizers.Tokenizer) -> bool:
    kind = type(library.model).__name__
    # What is put before or behind each piece of a word is copied for each.
    marks = [getattr(library.model, name, None) or "" for name in _MARKS]
    if any(len(mark) > MAX_MARK_CHARS for mark in marks):
        return False
    if kind == "WordPiece":
        return bool(library.model.max_input_chars_per_word <= MAX_WORD_CHARS)
    if kind == "Unigram":
        tokens = library.get_vocab(with_added_tokens=False)
        return max(map(len, tokens), default=0) <= MAX_UNIGRAM_CHARS
    return True


def _description(part: Any) -> object:
    """Returns a part of the library as tokenizer.json has it."""
    return None if part is None else json.loads(part.__getstate__())


def _encode_cpu_s(text: str) -> float:
    return _CPU_S + _CPU_S_PER_CHAR * len(text)


def _loading(work: Callable[[], T], where: str) -> T:
    try:
        return work()
    except BaseException as error:
        _check_own(error)
        raise CheckpointError(
            f"{where} cannot be read",
            seen=error,
            remedy="Download it again; one that is whole needs a newer library (`pip install -U "
            "tokenizers`).",
        ) from error


def _failed(error: BaseException, where: str) -> RequestError:
    _check_own(error)
    return RequestError(
        "the model's tokenizer fails at this",
        seen=f"{where}: {error}",
        remedy="Send another text; if it fails at all of them, take the tokenizer of the model's "
        "own publisher.",
    )


def _check_own(error: BaseException) -> None:
    """Re-raises `error` unless the library caused it, by an error or a panic."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
