"""The training text of a job, as rows."""

from dataclasses import dataclass

from paredown.distill.rows import Rows
from paredown.evaluate.texts.sampling_executor import load_sampling_executor
from paredown.evaluate.texts.training_text import TrainingTextConfig, choose_training_text
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """`source` says in reports where the rows come from."""

    rows: Rows
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
