"""A reward that can be checked rises: answers that end in a full stop within 40 tokens."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drivers.tiny_training import config
from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.distill import DistillConfig, Pair
from paredown.distill.methods import MethodOptions
from paredown.distill.peers import Peers
from paredown.errors import ConfigError
from paredown.jobs import distill
from paredown.jobs.distill import DistilledCheckpoint, distill_and_verify
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

# A sixth of the answers end in a full stop.
ANSWERS = ("ab.", "ab", "abb", "b", "ba", "bb")
LINES = [
    {"prompt": "p" * length, "completion": answer} for length in (1, 2, 3) for answer in ANSWERS
]
REWARDS = re.compile(r"mean reward from (\S+) in the first .* to (\S+) in the last")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A model that has learned the answers."""
    folder = tmp_path_factory.mktemp("models")
    make_model("llama", torch.float32, 4).save_pretrained(folder / "start")
    byte_level().save(str(folder / "start" / "tokenizer.json"))
    options = settings(data, str(folder / "start"), "hard-label", 60 * 64)
    distill_and_verify(folder / "start", folder / "taught", options, verify=None, num_threads=1)
    return folder / "taught"


def settings(
    data: Path, student: str, method: str, num_tokens: int, **options: object
) -> DistillConfig:
    found = MethodOptions(prompt_tokens=4, new_tokens=40, **options)  # type: ignore[arg-type]
    return DistillConfig(
        train=config(num_tokens, batch_tokens=64, learning_rate=3e-3),
        student=student,
        method=method,
        options=found,
        data=TrainingDataConfig(paths=(data,), row_tokens=32, held_out=0.0),
    )


def in_answers(options: DistillConfig) -> DistillConfig:
    """Returns the settings with 16 answers a step."""
    return replace(options, train=replace(options.train, batch_tokens=16 * 44))


def rewarded(made: DistilledCheckpoint) -> tuple[float, float]:
    (found,) = (match for note in made.notes if (match := REWARDS.search(note)))
    return float(found[1]), float(found[2])


def test_a_reward_rises_above_its_teacher(teacher: Path, data: Path, tmp_path: Path) -> None:
    options = settings(
        data,
        str(teacher),
        "auto",
        40 * 16 * 44,
        reward="drivers.full_stop:score",
        kl_weight=0.02,
        num_answers=8,
    )
    options = in_answers(options)
    made = distill_and_verify(teacher, tmp_path / "out", options, verify=None, num_threads=1)
    before, after = rewarded(made)
    assert made.method == "reward"
    assert before < 0.5
    assert after > 0.8


def test_a_resumed_run_tells_the_rewards_since_then(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    options = in_answers(
        settings(data, str(teacher), "reward", 6 * 16 * 44, reward="drivers.full_stop:score")
    )
    options = replace(options, train=replace(options.train, save_every_s=0.0))

    def stop(what: str, share: float) -> None:
        if what.startswith("training") and share >= 0.5:
            raise KeyboardInterrupt

    def run(output: Path, on_progress: OnProgress | None = None) -> str:
        made = distill_and_verify(
            teacher, output, options, verify=None, num_threads=1, on_progress=on_progress
        )
        return next(note for note in made.notes if REWARDS.search(note))

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", stop)
    assert run(tmp_path / "out").endswith("of 3 steps with rewards since the run was resumed")
    assert run(tmp_path / "whole").endswith("of 6 steps with rewards")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("method", ["reward", "auto"])
def test_several_processes_are_refused_before_any_work(
    method: str,
    rank: int,
    teacher: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each process tells it by itself, so that none waits for another."""
    peers = object.__new__(Peers)
    peers.rank, peers.number = rank, 2
    monkeypatch.setattr(distill, "joined_peers", lambda: nullcontext(peers))
    options = settings(data, "every-2", method, 1000, reward="drivers.full_stop:score")
    with pytest.raises(ConfigError, match=r"reward in 2 processes.*without `torchrun`"):
        distill_and_verify(teacher, tmp_path / "out", options, verify=None, num_threads=1)
    assert list(tmp_path.iterdir()) == []
    student = Checkpoint.open(teacher)
    pair = Pair(student=student, teacher=student, peers=peers)
    with pytest.raises(ConfigError, match="reward in 2 processes"):
        pair.check(replace(options, method="reward"))


def test_the_texts_come_first_where_the_student_knows_no_answer(
    teacher: Path, data: Path, tmp_path: Path
) -> None:
    """A student that begins anew finds no full stop without them."""
    start = str(teacher.parent / "start")
    found = []
    for share in (0.0, 0.5):
        options = settings(
            data,
            start,
            "reward",
            40 * 16 * 44,
            reward="drivers.full_stop:score",
            kl_weight=0.0,
            num_answers=8,
            warm_share=share,
        )
        output = tmp_path / str(share)
        made = distill_and_verify(teacher, output, in_answers(options), verify=None, num_threads=1)
        found.append(rewarded(made)[1])
        assert f"of {round(40 * (1 - share))} steps with rewards" in " ".join(made.notes)
    assert found[0] < 0.1
    assert found[1] > found[0] + 0.3
