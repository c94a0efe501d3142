"""Vocabulary: what llguidance must know of a model's tokens."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from paredown.errors import UnsupportedError

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_REMEDY = (
    "Use a model whose tokens stand for bytes (byte-level BPE, or SentencePiece with byte "
    "fallback) and that has an end token."
)


@runtime_checkable
class GrammarTokenizer(Protocol):
    """The part of a tokenizer that grammars use."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    @property
    def encodes_here(self) -> bool:
        """Whether its patterns take a time that grows with the text alone."""
        ...

    def to_json(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """`tokenizer_json` is a tokenizer.json. A mask has `num_tokens` bits; `end_token_ids` end an
    answer."""

    tokenizer_json: str
    num_tokens: int
    end_token_ids: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: object, vocab_size: int) -> "Vocabulary":
        """Returns that of a model with `vocab_size` rows of logits, which may be more or less than
        its tokens. Raises UnsupportedError where no token ends a text, or where text that a grammar
        leaves no choice about could take any time to tokenize."""
        if not isinstance(tokenizer, GrammarTokenizer):
            raise _unsupported(f"{type(tokenizer).__name__}, which is no tokenizer.json")
        num_tokens = min(vocab_size, tokenizer.vocab_size)
        ends = sorted(one for one in tokenizer.eos_token_ids if one < num_tokens)
        if not ends:
            raise _unsupported("no token that ends a text")
        if not tokenizer.encodes_here:
            raise _unsupported("a tokenizer with slow patterns")
        return cls(
            tokenizer_json=tokenizer.to_json(),
            num_tokens=max(vocab_size, tokenizer.vocab_size),
            end_token_ids=tuple(ends),
        )

    def to_bytes(self) -> bytes:
        """Returns it as the setup of the process that checks grammars."""
        return json.dumps([self.tokenizer_json, self.num_tokens, self.end_token_ids]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Vocabulary":
        text, num_tokens, ends = json.loads(data)
        return cls(tokenizer_json=text, num_tokens=num_tokens, end_token_ids=tuple(ends))

    def open(self) -> "LLTokenizer":
        """Returns llguidance's tokenizer; it takes about a second for 150,000 tokens. Raises
        UnsupportedError for one that it cannot read."""
        from llguidance import LLTokenizer

        try:
            return LLTokenizer(
                self.tokenizer_json, n_vocab=self.num_tokens, eos_token=list(self.end_token_ids)
            )
        except BaseException as error:  # a panic of the library is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            raise _unsupported(error) from error


def _unsupported(seen: object) -> UnsupportedError:
    return UnsupportedError(
        "this model's answers cannot follow a grammar", seen=seen, remedy=_REMEDY
    )
