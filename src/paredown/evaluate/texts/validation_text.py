"""Provides the text on which choices are made. It shares no author with the evaluation text."""

from pathlib import Path

from paredown.evaluate.texts.encoder_texts import EncoderTexts, choose_encoder_texts
from paredown.evaluate.texts.text import (
    DATA_TEXT,
    EvalText,
    choose_text,
    data_file,
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

    tokenizer = Tokenizer.open(checkpoint.path)
    longest = min(checkpoint.spec.max_positions, window)
    books = path or data_file(VALIDATION_TEXT)
    return choose_text(books, tokenizer, num_tokens, sampler, longest)


def choose_validation_texts(checkpoint: Checkpoint, num_tokens: int) -> EncoderTexts:
    """Returns texts of about `num_tokens` tokens for an encoder, from the beginning of the classic
    books' validation split; else what `choose_encoder_texts` finds without a path."""
    return choose_encoder_texts(
        data_file(VALIDATION_TEXT),
        Tokenizer.open(checkpoint.path),
        num_tokens,
        vocab_size=checkpoint.spec.vocab_size,
        max_positions=checkpoint.spec.max_positions,
    )
