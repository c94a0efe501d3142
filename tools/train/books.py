"""The corpus: public-domain books, split by author into train, valid and test."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

# Every book of the corpus opens with this line.
BOOK_START = re.compile(r"(?m)^(?=# Title: )")


def read_split(data: Path, split: str) -> str:
    """The whole text of one split; `train` is stored compressed."""
    folder = data / "text" / "classic-books"
    plain, packed = folder / f"{split}.txt", folder / f"{split}.txt.xz"
    if plain.exists():
        return plain.read_text(encoding="utf-8")
    if packed.exists():
        return lzma.decompress(packed.read_bytes()).decode("utf-8")
    raise FileNotFoundError(
        f"no {split}.txt or {split}.txt.xz in {folder}; name the data folder with --data"
    )


def read_books(data: Path, split: str) -> list[str]:
    """The books of one split, in the file's order; together they are the split's text."""
    return [book for book in BOOK_START.split(read_split(data, split)) if book]
