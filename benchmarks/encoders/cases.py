"""The cases of the encoders: what is measured, on which texts, and what is asked of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tokenizers

EncoderKind = Literal["int8", "bf16", "fp32"]
# What is asked of our rate beside the best peer's.
KINDS: dict[EncoderKind, float] = {"int8": 1.3, "bf16": 1.2, "fp32": 0.95}
# Plain words that nearly all are one token in a WordPiece vocabulary.
TEXT = (
    "the house by the river was old and quiet but every morning a boat came down with letters "
    "for the people who lived there and the children ran to the water to see what it had brought "
    "from the town where their father worked in winter"
)


@dataclass(frozen=True, kw_only=True)
class EncoderCase:
    """`batch` texts of `num_tokens` tokens each, special ones included."""

    kind: EncoderKind
    num_tokens: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.num_tokens} tokens x {self.batch}"

    @property
    def min_ratio(self) -> float:
        return KINDS[self.kind]

    def texts(self, model: Path) -> list[str]:
        """Returns texts that the model's tokenizer makes exactly so many tokens of, each another
        one."""
        tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        words = TEXT.split()

        def count(text: str) -> int:
            return len(tokenizer.encode(text).ids)

        return [text_of(words, count, self.num_tokens, first) for first in range(self.batch)]


def encoder_cases(
    kinds: Sequence[EncoderKind], tokens: Sequence[int], batches: Sequence[int]
) -> list[EncoderCase]:
    """Returns the cases in the order of the table."""
    return [
        EncoderCase(kind=kind, num_tokens=num_tokens, batch=batch)
        for kind in kinds
        for batch in batches
        for num_tokens in tokens
    ]


def text_of(
    known: Sequence[str], count: Callable[[str], int], num_tokens: int, first: int = 0
) -> str:
    """Returns a text of `num_tokens` tokens, as `count` has them, of known words from the one of
    index `first` on. Raises ValueError where a word is more than one token."""
    words = list[str]()
    while True:
        word = known[(first + len(words)) % len(known)]
        words.append(word)
        text = " ".join(words)
        found = count(text)
        if found > num_tokens:
            raise ValueError(f"no text of {num_tokens} tokens: {word!r} is more than one")
        if found == num_tokens:
            return text
