"""The text that a student learns from, and the part of it that judges the student."""

from dataclasses import replace

from paredown.distill.data.learned_data import LearnedData
from paredown.distill.data.training_data import (
    read_training_data,
    split_windows,
)
from paredown.distill.distill import DistillConfig, Pair
from paredown.distill.rows import Rows
from paredown.errors import ConfigError
from paredown.evaluate.texts.calibration_text import text_parts
from paredown.evaluate.texts.training_text import TrainingTextConfig
from paredown.jobs.encoder_training_texts import encoder_texts
from paredown.jobs.recipe_texts import TOKENS_PER_MINUTE
from paredown.jobs.training_rows import training_rows
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


def distillation_text(pair: Pair, config: DistillConfig, num_threads: int | None) -> LearnedData:
    """Reads the config's files, else takes the text that recovery takes, or has the teacher sample
    one. Encoders learn from whole texts, random ones where there are no others. Raises ConfigError
    where nothing is left to train on, and CheckpointError for a file that cannot be read."""
    train = config.train
    wanted = train.num_tokens or round((train.minutes or 0) * TOKENS_PER_MINUTE)
    context = min(pair.student.spec.max_positions, pair.teacher.spec.max_positions)
    data = replace(config.data, row_tokens=min(config.data.row_tokens, context))
    tokenizer = Tokenizer.open(pair.student.path)
    if not pair.student.spec.generates:
        return encoder_texts(pair.student, data, wanted)
    if data.paths:
        return read_training_data(data, tokenizer, pair.student.spec.vocab_size, wanted)
    writer = _writer(pair, tokenizer)
    # So much more that as much as wanted is left to train on.
    needed = round(wanted / (1 - data.held_out))
    text = TrainingTextConfig(num_tokens=needed, window_tokens=data.row_tokens)
    found = training_rows(writer, text, num_threads)
    assert isinstance(found.rows, Rows), "only encoders learn from other rows"
    return split_windows(found.rows, found.source, data.held_out, wanted)


def _writer(pair: Pair, tokenizer: Tokenizer) -> Checkpoint:
    """Returns the model whose tokens the text is cut into, and which samples it if need be."""
    if tokenizer.vocabulary == Tokenizer.open(pair.teacher.path).vocabulary:
        return pair.teacher
    if not text_parts(None, tokenizer):
        raise ConfigError(
            "the student does not know the teacher's tokens, so it cannot learn from text that the "
            "teacher samples",
            seen="vocabularies that differ, and no text",
            remedy="Give a text (--data).",
        )
    return pair.student
