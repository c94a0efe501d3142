"""Black box end to end: a served teacher writes tasks and answers them, a student learns them.

The run that asks is killed once on the way and started again.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.distill import DistillConfig
from paredown.distill.train_config import TrainConfig
from paredown.engine.llm import LLM
from paredown.evaluate.tasks.rouge import load_rouge
from paredown.evaluate.tasks.self_instruct import measure_self_instruct, read_instructions
from paredown.jobs.distill import distill_and_verify

_PROGRAM = (sys.executable, "-m", "paredown.cli.main")
_HELD_OUT = 0.1
_RATE = 1e-4
# The run that asks is killed once so large a share of the examples was answered.
_KILLED_AT = 0.2


@dataclass(frozen=True, kw_only=True)
class BlackBox:
    """`seeds` are the tasks to begin with. The student learns from `num_examples` of the teacher
    for `num_tokens`, and answers `num_questions` of Self-Instruct before and after."""

    teacher: Path
    student: Path
    seeds: Path
    num_examples: int
    num_tokens: int
    num_questions: int
    answer_tokens: int = 128


def measure_black_box(run: BlackBox, folder: Path) -> dict[str, Any]:
    """Returns the figures; what was asked and the student stay in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.jsonl"
    with served(run.teacher) as (url, name):
        command = synthesis(run, data, url, name)
        kill_midway(command, asked_of(data), run.num_examples)
        began = time.monotonic()
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        seconds = time.monotonic() - began
    sent = sent_of(asked_of(data))
    config = DistillConfig(
        train=TrainConfig(
            num_tokens=run.num_tokens, learning_rate=_RATE, final_learning_rate=_RATE / 10
        ),
        student=str(run.student),
        method="hard-label",
        data=TrainingDataConfig(paths=(data,), held_out=_HELD_OUT),
    )
    trained = folder / "student"
    made = distill_and_verify(run.student, trained, config, verify=None, overwrite=True)
    looks = [one.loss for one in made.written.training.judgements]
    return {
        "synthesis": json.loads(told),
        "seconds_after_the_kill": seconds,
        "num_different_requests": len(sent),
        "num_sent": sent.total(),
        "num_sent_again": sum(count > 1 for count in sent.values()),
        "source": made.source,
        "held_out_loss_before": looks[0],
        "held_out_loss_after": min(looks),
        "rouge_l_before": rouge_of(run.student, run),
        "rouge_l_after": rouge_of(trained, run),
    }


def synthesis(run: BlackBox, data: Path, url: str, name: str) -> list[str]:
    return [
        *(*_PROGRAM, "synthesize", "--address", url, "--model", name, "--ask", "expand"),
        *("--input", str(run.seeds), "--num", str(run.num_examples), "--keep-cut"),
        *("--answer-tokens", str(run.answer_tokens), "--concurrency", "16"),
        *("-o", str(data), "--json"),
    ]


def asked_of(data: Path) -> Path:
    return data.with_name(f"{data.name}.asked")


def kill_midway(command: list[str], asked: Path, num_examples: int) -> None:
    """Runs the command until a share of the examples was answered, and kills it then."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            answered = asked.read_bytes().count(b'"answered"') if asked.exists() else 0
            if answered >= _KILLED_AT * num_examples:
                process.send_signal(signal.SIGKILL)
                return
            time.sleep(0.2)
    raise SystemExit(f"the run that was to be killed ended before: {process.returncode}")


def sent_of(asked: Path) -> Counter[str]:
    """Counts how often each request was sent."""
    lines = (json.loads(line) for line in asked.read_text().splitlines())
    return Counter(line["asking"] for line in lines if "asking" in line)


@contextmanager
def served(model: Path) -> Iterator[tuple[str, str]]:
    """Yields the address and the name of a model that our server has loaded."""
    command = [*_PROGRAM, "serve", str(model), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}) as server:
        assert server.stdout is not None
        try:
            told = json.loads(server.stdout.readline())
            wait_until_ready(told["url"])
            yield told["url"], told["model"]
        finally:
            server.terminate()


def wait_until_ready(url: str) -> None:
    """Waits while the model is loaded, up to two minutes."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:  # a refusal is one, too
            time.sleep(0.2)
    raise SystemExit(f"{url} was not ready in two minutes")


def rouge_of(model: Path, run: BlackBox) -> float:
    questions = read_instructions(None, run.num_questions)
    result = measure_self_instruct(
        LLM(model), questions, load_rouge(), answer_tokens=run.answer_tokens
    )
    return result.rouge_l
