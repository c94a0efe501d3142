"""Computes the perplexity that quantization papers report, by the procedure of GPTQ (arXiv
2210.17323).

The test split's rows are joined into one text, which is tokenized once, with the start token where
the tokenizer's template puts one. The tokens are cut into windows of the model's context, at most
2048; the remainder is dropped. A window's first token is not predicted, the others from what
precedes them in the window. With n windows of S tokens the papers write

    perplexity = exp(sum over windows of (mean NLL of its S - 1 predictions * S) / (n * S)),

which is the perplexity over all n (S - 1) predictions.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paredown.errors import ConfigError
from paredown.evaluate.texts.text import (
    DATA_VARIABLE,
    EvalText,
    EvalWindow,
    TextTokenizer,
    read_text,
    window_tokens,
)

# Replaces rare words in copies of WikiText-2 other than the raw one that the papers use.
_UNKNOWN = "<unk>"


class TemplateTokenizer(TextTokenizer, Protocol):
    """A tokenizer that also knows the token before a text."""

    @property
    def prompt_prefix(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set. `join` makes one text of a file's lines; `raw` says that the papers' copy has all
    words."""

    file: Path
    join: Callable[[Sequence[str]], str]
    raw: bool


def join_wikitext(lines: Sequence[str]) -> str:
    """Joins rows with "\\n\\n". A row is a line with its end, or empty for a line without words."""
    return "\n\n".join(f"{line}\n" if line.strip() else "" for line in lines)


def join_ptb(lines: Sequence[str]) -> str:
    """Joins rows with " ". A row is a sentence without the space around it (GPTQ's --new-eval)."""
    return " ".join(line.strip() for line in lines)


DATASETS = {
    "wikitext2": Dataset(
        file=Path("text") / "wikitext-2" / "test.txt", join=join_wikitext, raw=True
    ),
    "ptb": Dataset(file=Path("text") / "ptb" / "ptb.test.txt", join=join_ptb, raw=False),
}


def gptq_text(
    name: str,
    tokenizer: TemplateTokenizer,
    max_positions: int,
    *,
    path: Path | None = None,
    num_tokens: int | None = None,
) -> EvalText:
    """Returns the data set of that name, from `path` or else $PAREDOWN_DATA: all of it, or the
    windows within its first `num_tokens`. Raises ConfigError if it is missing, no text or shorter
    than a window, and CheckpointError if it cannot be read."""
    dataset = DATASETS[name]
    path = _find(name, dataset) if path is None else path
    raw = read_text(path)
    lines = raw.removesuffix("\n").split("\n")
    ids = [*tokenizer.prompt_prefix, *tokenizer.encode(dataset.join(lines))]
    size = window_tokens(max_positions)
    num_windows = (len(ids) if num_tokens is None else min(num_tokens, len(ids))) // size
    if num_windows < 1 or size < 2:
        raise ConfigError(
            "there is no whole window of text to measure quality on",
            seen=f"{len(ids)} tokens of {path.name}, --tokens {num_tokens or 'not given'}, "
            f"windows of {size}",
            remedy="Give the whole text (--text), and --tokens of a window or more.",
        )
    cut = [ids[start : start + size] for start in range(0, num_windows * size, size)]
    windows = [EvalWindow(inputs=one[:-1], targets=one[1:]) for one in cut]
    predicted = [token for window in windows for token in window.targets]
    note = (
        f"; it has {_UNKNOWN} in place of rare words, the papers' copy (wikitext-2-raw-v1) does not"
        if dataset.raw and _UNKNOWN in raw
        else ""
    )
    return EvalText(
        windows=windows,
        num_tokens=len(predicted),
        num_bytes=max(1, len(tokenizer.decode(predicted).encode())),
        window_tokens=size,
        source=path.name,
        protocol=f"GPTQ's, {name}: {num_windows:,} windows of {size} tokens of {path} "
        f"({len(predicted):,} tokens predicted, the first of each window and the last "
        f"{len(ids) - num_windows * size:,} not){note}",
    )


def _find(name: str, dataset: Dataset) -> Path:
    data = os.environ.get(DATA_VARIABLE)
    path = Path(data or "") / dataset.file
    if data and path.is_file():
        return path
    raise ConfigError(
        f"the test split of {name} is not there",
        seen=f"no file {path}" if data else f"{DATA_VARIABLE} is not set",
        remedy=f"Set {DATA_VARIABLE} to a folder that holds {dataset.file}, or name the file with "
        "--text, a row per line.",
    )
