"""A reward that can be checked: an answer ends in a full stop within 40 tokens.

The model learns to finish sentences of the classic books. Prompts are their first words, taken from
the training split; students are measured on prompts of the test split.
"""

import json
import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.distill.held_out_prompts import one_pass
from benchmarks.kept_models import KeptModels
from paredown.distill.arithmetic import choose_arithmetic
from paredown.distill.data.training_data import TrainingDataConfig, read_training_data
from paredown.distill.distill import DistillConfig
from paredown.distill.forward import fuse_attention
from paredown.distill.methods import MethodOptions
from paredown.distill.on_policy.own_divergence import own_divergence
from paredown.distill.on_policy.prompts import Prompts
from paredown.distill.on_policy.sample import sample
from paredown.distill.teacher import DecoderTeacher
from paredown.distill.train_config import TrainConfig
from paredown.evaluate.texts.calibration_text import DATA_TEXT as TRAIN_TEXT
from paredown.evaluate.texts.calibration_text import read_beginning
from paredown.evaluate.texts.text import DATA_TEXT, DATA_VARIABLE
from paredown.jobs.distill import distill_and_verify
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

_REWARD = "benchmarks.distill.reward:ends_in_full_stop"
_PROMPT_WORDS = 12
_PROMPT_TOKENS = 32


@dataclass(frozen=True, kw_only=True)
class RewardRun:
    """Students are `model`, trained on `num_tokens`, and answer `num_prompts` prompts afterwards.
    `kl_weight` is that of the divergence from the model."""

    model: str | None
    num_tokens: int
    batch_tokens: int
    learning_rate: float
    kl_weight: float
    warm_share: float
    num_prompts: int = 256
    num_sentences: int = 4096
    new_tokens: int = 40


def ends_in_full_stop(prompt: str, answer: str) -> float:
    return float(answer.endswith("."))


def measure_reward(run: RewardRun, models: KeptModels) -> dict[str, Any]:
    """Returns the figures of the model itself, of a reward alone, and after cross-entropy."""
    source = resolve_model(run.model)
    models.path.mkdir(parents=True, exist_ok=True)
    texts = {
        "train": _write_sentences(source, run, TRAIN_TEXT, models.path / "train.jsonl"),
        "test": _write_sentences(source, run, DATA_TEXT, models.path / "test.jsonl"),
    }
    found = {"as it starts": measured(source, source, run, texts["test"])}
    for name, warm_share in (("reward", 0.0), ("cross-entropy, reward", run.warm_share)):

        def make(path: Path, warm_share: float = warm_share) -> dict[str, Any]:
            config = _config(run, texts["train"], str(source), warm_share)
            made = distill_and_verify(source, path, config, verify=None, overwrite=True)
            told = {
                "minutes": made.written.training.records[-1].elapsed_s / 60,
                "notes": list(made.notes),
            }
            return measured(source, path, run, texts["test"]) | told

        found[name] = models.figures(name.replace(", ", "-"), make)
        print(f"{name}: {found[name]}", file=sys.stderr)
    return found


def _config(run: RewardRun, data: Path, student: str, warm_share: float) -> DistillConfig:
    return DistillConfig(
        train=TrainConfig(
            num_tokens=run.num_tokens,
            batch_tokens=run.batch_tokens,
            learning_rate=run.learning_rate,
            final_learning_rate=run.learning_rate / 10,
        ),
        student=student,
        method="reward",
        options=MethodOptions(
            reward=_REWARD,
            kl_weight=run.kl_weight,
            warm_share=warm_share,
            prompt_tokens=_PROMPT_TOKENS,
            new_tokens=run.new_tokens,
        ),
        data=TrainingDataConfig(paths=(data,), row_tokens=_PROMPT_TOKENS + run.new_tokens),
    )


def measured(teacher: Path, student: Path, run: RewardRun, data: Path) -> dict[str, float]:
    """Returns the share of good answers, and the reverse KL divergence from the teacher at a token
    of these answers."""
    tokenizer = Tokenizer.open(student)
    decoder = Decoder.from_checkpoint(Checkpoint.open(student))
    fuse_attention(decoder)
    known = DecoderTeacher.load(Checkpoint.open(teacher), choose_arithmetic("cpu"))
    wanted = TrainingDataConfig(paths=(data,), held_out=0, row_tokens=128)
    rows = read_training_data(wanted, tokenizer, decoder.spec.vocab_size, 1 << 30).rows
    prompts = Prompts(token_ids=Prompts.of_rows(rows, _PROMPT_TOKENS).token_ids[: run.num_prompts])
    sampling, num_steps = one_pass(student, prompts, run.new_tokens)
    scores = [
        ends_in_full_stop("", tokenizer.decode(ids))
        for step in range(num_steps)
        for ids in sample(decoder, sampling, step).answers()
    ]
    return {
        "share": sum(scores) / len(scores),
        "kl_a_token": own_divergence(decoder, known, sampling, num_steps),
    }


def _write_sentences(model: Path, run: RewardRun, text: Path, output: Path) -> Path:
    """Writes sentences as prompts and completions that fit in the tokens of an answer. Exits
    without the texts."""
    data = os.environ.get(DATA_VARIABLE)
    if data is None:
        raise SystemExit(f"Set {DATA_VARIABLE} for the sentences.")
    tokenizer = Tokenizer.open(model)
    found = sentences(read_beginning(Path(data) / text))
    # From all over the text, and more than are wanted, since some are too long.
    found = found[:: max(1, len(found) // (2 * run.num_sentences))]
    lines = [
        json.dumps({"prompt": prompt, "completion": completion})
        for prompt, completion in found
        if len(tokenizer.encode(completion)) < run.new_tokens
    ]
    random.Random(0).shuffle(lines)
    output.write_text("".join(f"{line}\n" for line in lines[: run.num_sentences]))
    return output


def sentences(text: str) -> list[tuple[str, str]]:
    """Returns the first words of each sentence that goes on after them, and the rest of it."""
    found = []
    for sentence in " ".join(text.split()).split(". "):
        words = sentence.split(" ")
        if len(words) > _PROMPT_WORDS:
            prompt, rest = words[:_PROMPT_WORDS], words[_PROMPT_WORDS:]
            found.append((" ".join(prompt), f" {' '.join(rest)}."))
    return found


def show_reward(found: dict[str, Any]) -> None:
    table = Table("what", "good answers", "KL a token", "minutes")
    for name, own in found.items():
        table.add_row(
            name,
            f"{own['share']:.1%}",
            f"{own['kl_a_token']:.4f}",
            f"{own['minutes']:.1f}" if "minutes" in own else "",
        )
    Console().print(table)
