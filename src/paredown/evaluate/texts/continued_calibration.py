"""Calibration texts for encoder-decoders: windows at random places of a text, each in two.

The first half is the encoder's, as a whole text with its special tokens. The decoder reads how it
goes on, from its start token (evaluate/texts/continued_text.py).

Shapes: N windows of T tokens.
"""

from collections.abc import Callable

import numpy as np

from paredown.compress.calibrate.calibration import Calibration
from paredown.errors import ConfigError
from paredown.evaluate.texts.calibration_text import (
    DATA_TEXT,
    CalibrationConfig,
    check_sizes,
    cut_windows,
    read_beginning,
)
from paredown.evaluate.texts.continued_text import RANDOM, ContinuedTokenizer, Cutter
from paredown.evaluate.texts.sampled_answers import sample_answers
from paredown.evaluate.texts.text import data_file
from paredown.executors.protocol import Executor
from paredown.spec.model import ModelSpec

# A text of one token beside its end, and as much for the decoder.
_LEAST_TOKENS = 8


def choose_continued_calibration(
    config: CalibrationConfig,
    tokenizer: ContinuedTokenizer,
    reference: Callable[[], Executor],
    spec: ModelSpec,
) -> Calibration:
    """Returns windows of the config's text, else of the classic books in $PAREDOWN_DATA. Without
    either the encoder reads random tokens, and the decoder what the reference model samples for
    them, which is loaded only then. Raises ConfigError for a text shorter than one window, and
    CheckpointError for one that cannot be read."""
    check_sizes(config, config.num_tokens)
    if config.num_tokens < _LEAST_TOKENS:
        raise ConfigError(
            "the encoder reads one half of a calibration window, and the decoder the other",
            seen=f"windows of {config.num_tokens} tokens",
            remedy=f"Give at least {_LEAST_TOKENS} (--calibration-tokens).",
        )
    half = config.num_tokens // 2
    cutter = Cutter.of(tokenizer, spec, half, config.num_tokens - half)
    path, number = config.text or data_file(DATA_TEXT), config.num_samples
    room, num_read = cutter.whole.room, cutter.num_answer_tokens - 1
    if path is None:
        windows = cutter.random_prompts(number, spec.vocab_size)
        start = cutter.start_token_id
        answers = sample_answers(reference(), windows, start, num_read) if num_read else []
        answers_NT = np.array(answers, np.int64).reshape(number, num_read)
    else:
        text = read_beginning(path)
        ids_NT = cut_windows(text, tokenizer, number, room + num_read, config.seed, path)
        windows = [cutter.whole.put(ids.tolist()) for ids in ids_NT]
        answers_NT = ids_NT[:, room:]
    windows_NT = np.array(windows, np.int64)
    starts_N1 = np.full((number, 1), cutter.start_token_id, np.int64)
    source = RANDOM if path is None else path.name
    return Calibration(
        windows_NT=windows_NT,
        answers_NT=np.concatenate([starts_N1, answers_NT], axis=1),
        source=f"{number} windows of {source}: {windows_NT.shape[1]} tokens for the encoder, and "
        f"{num_read + 1} for the decoder",
    )
