"""The windows of calibration text for a job."""

from paredown.compress.calibrate.calibration import Calibration
from paredown.evaluate.texts.calibration_text import CalibrationConfig, choose_calibration
from paredown.evaluate.texts.continued_calibration import choose_continued_calibration
from paredown.evaluate.texts.encoder_texts import choose_encoder_calibration
from paredown.evaluate.texts.sampling_executor import load_sampling_executor
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


def calibration_windows(
    source: Checkpoint, config: Calibration | CalibrationConfig, num_threads: int | None
) -> Calibration:
    """Cuts the windows from the config's text, or has `source` sample one; windows that are
    already cut are returned unchanged. Those of an encoder are whole texts with their special
    tokens, and those of an encoder-decoder have a part for each side. Raises ConfigError for a text
    that is too short and CheckpointError for one that cannot be read."""
    if isinstance(config, Calibration):
        return config
    tokenizer = Tokenizer.open(source.path)
    if not source.spec.generates:
        return choose_encoder_calibration(
            config,
            tokenizer,
            vocab_size=source.spec.vocab_size,
            max_positions=source.spec.max_positions,
        )
    if source.spec.encoder is not None:
        return choose_continued_calibration(
            config, tokenizer, lambda: load_sampling_executor(source, num_threads), source.spec
        )
    return choose_calibration(
        config,
        tokenizer,
        lambda: load_sampling_executor(source, num_threads),
        source.spec.max_positions,
    )
