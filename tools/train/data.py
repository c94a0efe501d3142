"""Token arrays of the corpus, and the deterministic order in which training reads them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from tools.train.books import read_books
from tools.train.places import TOKENIZER, add_data_argument, token_file
from tools.train.tokenizer import END_OF_TEXT_ID

Tokens = npt.NDArray[np.uint16]
CHUNK = 2048


def encode_books(tokenizer: Tokenizer, books: list[str]) -> Tokens:
    """All books as one array (tokens,), each preceded by the end-of-text token."""
    parts = []
    for book in books:
        ids = tokenizer.encode(book).ids
        parts.append(np.array([END_OF_TEXT_ID, *ids], dtype=np.uint16))
    return np.concatenate(parts)


@dataclass(frozen=True, kw_only=True)
class ChunkOrder:
    """A shuffled pass over the corpus, cut into chunks of 2,048 tokens.

    Batches shorter than a chunk read a group of chunks side by side: step 0 takes the first part
    of every chunk of the group, step 1 the second, and so on. So one batch mixes many books, no
    token is read twice in an epoch, and the position is one number (chunks already used), the
    same for every sequence length: a run may change its length and be resumed at any group.
    """

    tokens: Tokens
    seed: int

    @property
    def chunks_per_epoch(self) -> int:
        return len(self.tokens) // CHUNK

    def chunk_ids(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Positions in the corpus of chunks `first` .. `first + count` of the endless order."""
        wanted = np.arange(first, first + count)
        epochs = wanted // self.chunks_per_epoch
        ids = np.empty(count, dtype=np.int64)
        for epoch in np.unique(epochs):
            order = np.random.default_rng([self.seed, int(epoch)]).permutation(
                self.chunks_per_epoch
            )
            here = epochs == epoch
            ids[here] = order[wanted[here] % self.chunks_per_epoch]
        return ids

    def batches(self, first: int, batch_tokens: int, length: int) -> list[npt.NDArray[np.int64]]:
        """The batches of one group of chunks, each (batch_tokens / length, length).

        The group is `batch_tokens / length` chunks from chunk `first` of the order.
        """
        ids = self.chunk_ids(first, batch_tokens // length)
        rows = np.stack([self.tokens[i * CHUNK : (i + 1) * CHUNK] for i in ids]).astype(np.int64)
        return [rows[:, start : start + length] for start in range(0, CHUNK, length)]


def with_start(targets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Inputs for `targets` (rows, length): shifted by one, each row opened by end-of-text."""
    start = np.full((len(targets), 1), END_OF_TEXT_ID, dtype=np.int64)
    return np.concatenate([start, targets[:, :-1]], axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data_argument(parser)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    for split in ("train", "valid", "test"):
        books = read_books(args.data, split)
        tokens = encode_books(tokenizer, books)
        np.save(token_file(split), tokens)
        size = sum(len(book.encode()) for book in books)
        density = size / len(tokens)
        print(f"{split}: {len(books)} books, {len(tokens)} tokens, {density:.3f} bytes each")


if __name__ == "__main__":
    main()
