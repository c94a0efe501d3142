"""Where the scripts read the corpus and write their work files."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "runs"
ASSETS = ROOT / "src" / "paredown" / "assets"
TOKENIZER = RUNS / "corpus" / "tokenizer.json"


def default_data() -> Path:
    """Folder of the shared data: $PAREDOWN_DATA, else `../shared/data` beside the repository."""
    return Path(os.environ.get("PAREDOWN_DATA", ROOT.parent / "shared" / "data"))


def token_file(split: str) -> Path:
    """The token array of one split ("train", "valid" or "test")."""
    return RUNS / "corpus" / f"{split}.npy"
