"""Where the scripts read the corpus and write their work files."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "runs"
ASSETS = ROOT / "src" / "paredown" / "assets"
TOKENIZER = RUNS / "corpus" / "tokenizer.json"


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """Adds --data, the folder of the books: $PAREDOWN_DATA, or required where that is not set."""
    default = os.environ.get("PAREDOWN_DATA") or None
    parser.add_argument(
        "--data",
        type=Path,
        default=default,
        required=default is None,
        help="the folder that has text/classic-books (default: $PAREDOWN_DATA)",
    )


def token_file(split: str) -> Path:
    """The token array of one split ("train", "valid" or "test")."""
    return RUNS / "corpus" / f"{split}.npy"
