"""Beginnings of texts that no training reads, from which students go on."""

import os
from pathlib import Path

from paredown.distill.arithmetic import choose_arithmetic
from paredown.distill.on_policy.prompts import Prompts
from paredown.distill.on_policy.sampling import Sampling
from paredown.distill.rows import Rows
from paredown.evaluate.texts.text import DATA_TEXT, DATA_VARIABLE
from paredown.evaluate.texts.training_text import TrainingTextConfig
from paredown.jobs.training_rows import training_rows
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer

# Trainings draw with seed 0, and would see the same draws again.
_SEED = 12345
_WINDOW_TOKENS = 64
_AT_ONCE = 64


def held_out_prompts(model: Path, num_prompts: int, num_tokens: int) -> Prompts:
    """Returns the first tokens of windows of the test split. Exits without the texts."""
    data = os.environ.get(DATA_VARIABLE)
    if data is None:
        raise SystemExit(f"Set {DATA_VARIABLE} for the held-out text.")
    text = TrainingTextConfig(
        num_tokens=num_prompts * _WINDOW_TOKENS,
        text=Path(data) / DATA_TEXT,
        window_tokens=_WINDOW_TOKENS,
    )
    rows = training_rows(Checkpoint.open(model), text, None).rows
    assert isinstance(rows, Rows), "only encoders learn from other rows"
    return Prompts.of_rows(rows, num_tokens)


def one_pass(model: Path, prompts: Prompts, new_tokens: int) -> tuple[Sampling, int]:
    """Returns how one text is sampled from each prompt, or all but a rest, and in how many
    steps."""
    at_once = min(_AT_ONCE, prompts.num_prompts)
    sampling = Sampling(
        prompts=prompts,
        max_new_tokens=new_tokens,
        stop_ids=frozenset(Tokenizer.open(model).eos_token_ids),
        arithmetic=choose_arithmetic("cpu"),
        num_prompts=at_once,
        seed=_SEED,
    )
    return sampling, prompts.num_prompts // at_once
