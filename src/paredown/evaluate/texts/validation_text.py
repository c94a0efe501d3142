"""Provides the text on which choices are made. It shares no author with the evaluation text."""

import os
from pathlib import Path

from paredown.evaluate.texts.text import (
    DATA_TEXT,
    DATA_VARIABLE,
    EvalText,
    choose_text,
    sampling_pages,
)
from paredown.executors.cache_config import CacheConfig
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer

VALIDATION_TEXT = DATA_TEXT.with_name("valid.txt")


def choose_validation_text(
    checkpoint: Checkpoint, path: Path | None, num_tokens: int, window: int
) -> EvalText:
    """Returns `num_tokens` from the beginning of `path`, in windows of at most `window`; else from
    the classic books' validation split in $PAREDOWN_DATA; else what `choose_text` finds without a
    path. Raises what `choose_text` raises."""

    def sampler() -> LoadedExecutor:
        return load_executor(
            checkpoint,
            RunOptions(
                num_pages=sampling_pages(checkpoint.spec), cache=CacheConfig.from_environment()
            ),
        )

    if path is None and DATA_VARIABLE in os.environ:
        books = Path(os.environ[DATA_VARIABLE]) / VALIDATION_TEXT
        path = books if books.is_file() else None
    tokenizer = Tokenizer.open(checkpoint.path)
    return choose_text(
        path, tokenizer, num_tokens, sampler, min(checkpoint.spec.max_positions, window)
    )
