"""The byte-level BPE tokenizer that the default and the draft model share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tools.train.books import read_books
from tools.train.places import TOKENIZER, add_data_argument

VOCAB_SIZE = 8192
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0

# GPT-2's split with three changes: a clitic must end its word ('d in "he'd", not in "'do"),
# numbers fall into groups of three digits at most, and line breaks stay with the punctuation
# before them, because in prose a paragraph nearly always ends in punctuation.
SPLIT = (
    r"'(?:[sdmt]|ll|ve|re)(?!\p{L})| ?\p{L}+| ?\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def untrained_tokenizer() -> Tokenizer:
    """A tokenizer with the split and the byte alphabet, but without merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def samples(books: list[str], total_bytes: int, pieces_per_book: int = 4) -> Iterator[str]:
    """Yield about `total_bytes` characters, the same share of every book, from several places."""
    share = total_bytes / max(1, sum(len(book) for book in books))
    for book in books:
        stride = len(book) // pieces_per_book + 1
        for start in range(0, len(book), stride):
            yield book[start : start + int(stride * min(1.0, share))]


def train_tokenizer(books: list[str], total_bytes: int) -> Tokenizer:
    """Learn `VOCAB_SIZE` entries from a sample spread over all books."""
    tokenizer = untrained_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(samples(books, total_bytes), trainer)
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_argument(parser)
    parser.add_argument("--megabytes", type=float, default=30.0, help="size of the sample")
    args = parser.parse_args()
    tokenizer = train_tokenizer(read_books(args.data, "train"), int(args.megabytes * 1e6))
    TOKENIZER.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(TOKENIZER))
    print(f"{tokenizer.get_vocab_size()} entries in {TOKENIZER}")


if __name__ == "__main__":
    main()
