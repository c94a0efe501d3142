"""Training beside Transformers' Trainer: the same model, rows, steps and precision, in turns.

Every run is a process of its own, and the first step of each does not count. Both train all weights
in float32 with products in the processor's fastest arithmetic, by cross-entropy and AdamW.

    python -m benchmarks.distill.throughput NAME MODEL TOKENS STEPS OUTPUT     one run of NAME
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from paredown.distill.arithmetic import choose_arithmetic
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.distill import DistillConfig
from paredown.distill.rows import Rows
from paredown.distill.train_config import TrainConfig
from paredown.evaluate.texts.training_text import TrainingTextConfig
from paredown.jobs.distill import distill_and_verify
from paredown.jobs.training_rows import training_rows
from paredown.models.checkpoint import Checkpoint

OURS = "paredown"
# Trainer with a row at a time, whose gradients it adds up, and with all rows of a step at once.
NAMES = (OURS, "trainer-rows", "trainer-steps")
_ROW_TOKENS = 512


def measure_throughput(
    model: Path, batch_tokens: int, num_steps: int, num_rounds: int
) -> dict[str, dict[str, Any]]:
    """Returns the tokens a second of each, round by round."""
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(num_rounds):
        for name in NAMES[number % len(NAMES) :] + NAMES[: number % len(NAMES)]:
            rates[name].append(_run(name, model, batch_tokens, num_steps))
            print(f"{name}: {rates[name][-1]:.0f} tokens/s", file=sys.stderr)
    return summed_up(rates)


def summed_up(rates: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Returns the median of each, and what ours is of it within a round."""
    return {
        name: {
            "rounds": own,
            "tokens_per_s": statistics.median(own),
            "ours_over_it": statistics.median(
                ours / other for ours, other in zip(rates[OURS], own, strict=True)
            ),
        }
        for name, own in rates.items()
    }


def show_throughput(found: dict[str, dict[str, Any]]) -> None:
    table = Table("who", "tokens/s", "rounds", "ours over it")
    for name, own in found.items():
        rounds = ", ".join(f"{rate:.0f}" for rate in own["rounds"])
        ratio = f"{own['ours_over_it']:.2f}"
        table.add_row(name, f"{own['tokens_per_s']:.0f}", rounds, ratio)
    Console().print(table)


def _run(name: str, model: Path, batch_tokens: int, num_steps: int) -> float:
    with TemporaryDirectory(prefix="paredown-") as folder:
        output = Path(folder) / "ends.json"
        command = [sys.executable, "-m", "benchmarks.distill.throughput"]
        arguments = [name, str(model), str(batch_tokens), str(num_steps), str(output)]
        subprocess.run([*command, *arguments], check=True)
        return rate_of(json.loads(output.read_text()), batch_tokens)


def rate_of(ends_s: list[float], batch_tokens: int) -> float:
    """Returns tokens a second from when each step ended, without the first step."""
    return (len(ends_s) - 1) * batch_tokens / (ends_s[-1] - ends_s[0])


def ours(model: Path, batch_tokens: int, num_steps: int, work: Path) -> list[float]:
    """Returns when each step ended."""
    config = DistillConfig(
        train=TrainConfig(num_tokens=num_steps * batch_tokens, batch_tokens=batch_tokens),
        student=str(model),
        method="hard-label",
        data=TrainingDataConfig(held_out=0, row_tokens=_ROW_TOKENS),
    )
    made = distill_and_verify(model, work / "student", config, verify=None)
    return [record.elapsed_s for record in made.written.training.records]


def trainer(
    model: Path, batch_tokens: int, num_steps: int, work: Path, *, by_rows: bool
) -> list[float]:
    """Returns when each step of Transformers' Trainer ended."""
    import torch  # takes seconds, as do the imports below
    from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

    text = TrainingTextConfig(num_tokens=num_steps * batch_tokens, window_tokens=_ROW_TOKENS)
    text_rows = training_rows(Checkpoint.open(model), text, None).rows
    assert isinstance(text_rows, Rows), "only encoders learn from other rows"
    rows = [{"input_ids": ids.tolist(), "labels": ids.tolist()} for ids in text_rows.tokens_NT]
    ends_s: list[float] = []

    class Watch(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            ends_s.append(time.monotonic())

    step_rows = batch_tokens // _ROW_TOKENS
    arguments = TrainingArguments(
        output_dir=str(work / "trainer"),
        per_device_train_batch_size=1 if by_rows else step_rows,
        gradient_accumulation_steps=step_rows if by_rows else 1,
        max_steps=num_steps,
        learning_rate=1e-5,
        bf16=choose_arithmetic("cpu") == "bf16",
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    Trainer(model=loaded, args=arguments, train_dataset=rows, callbacks=[Watch()]).train()
    return ends_s


def _time_one(name: str, model: Path, batch_tokens: int, num_steps: int, output: Path) -> None:
    work = output.parent
    if name == OURS:
        ends_s = ours(model, batch_tokens, num_steps, work)
    else:
        by_rows = name == "trainer-rows"
        ends_s = trainer(model, batch_tokens, num_steps, work, by_rows=by_rows)
    output.write_text(json.dumps(ends_s))


if __name__ == "__main__":
    _time_one(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
