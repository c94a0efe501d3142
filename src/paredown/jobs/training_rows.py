"""The training text of a job, as rows."""

from dataclasses import dataclass

from paredown.distill.rows import BatchRows, Rows
from paredown.evaluate.texts.sampling_executor import load_sampling_executor
from paredown.evaluate.texts.self_generated import self_generated_windows
from paredown.evaluate.texts.training_text import (
    DEFAULT_WINDOW_TOKENS,
    TrainingTextConfig,
    choose_training_text,
)
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """`source` says in reports where the rows come from."""

    rows: BatchRows
    source: str


def training_rows(
    original: Checkpoint, config: TrainingTextConfig, num_threads: int | None
) -> TrainingRows:
    """Cuts the windows from the config's text, or has `original` sample one. Raises ConfigError for
    a text that is too short and CheckpointError for one that cannot be read."""
    text = choose_training_text(
        config,
        Tokenizer.open(original.path),
        lambda: load_sampling_executor(original, num_threads),
        original.spec.max_positions,
    )
    return TrainingRows(rows=Rows.from_windows(text.windows_NT), source=text.source)


def own_rows(original: Checkpoint, num_tokens: int, num_threads: int | None) -> TrainingRows:
    """Returns at least `num_tokens` tokens of text that `original` makes as LLM-QAT asks."""
    length = min(DEFAULT_WINDOW_TOKENS, original.spec.max_positions)
    windows_NT = self_generated_windows(
        load_sampling_executor(original, num_threads), -(-num_tokens // length), length
    )
    source = f"{len(windows_NT):,} windows of {length} tokens that the model itself made"
    return TrainingRows(rows=Rows.from_windows(windows_NT), source=source)
