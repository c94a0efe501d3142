"""Distills as one of several processes, and prints what came out:

    python -m drivers.peer_distillation TEACHER DATA OUT [LOGITS]

With LOGITS the teacher is read from there. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who
they are, as `torchrun` sets them."""

import json
import sys
from pathlib import Path

from drivers.tiny_training import config
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.distill import DistillConfig
from paredown.distill.teacher_logits.teacher_logits import TeacherLogits
from paredown.jobs.distill import distill_and_verify


def distill_as_peer(
    teacher: Path, data: Path, output: Path, logits: Path | None = None
) -> dict[str, object]:
    """Returns what came out; without those variables one process trains alone."""
    settings = DistillConfig(
        train=config(20 * 64, batch_tokens=64, learning_rate=3e-3),
        method="kl",
        data=TrainingDataConfig(paths=(data,), row_tokens=16, held_out=0.2),
        teacher_logits=None if logits is None else TeacherLogits(folder=logits, keep="whole"),
    )
    made = distill_and_verify(teacher, output, settings, verify=None, num_threads=1)
    training = made.written.training
    return {
        "losses": [record.loss for record in training.records],
        "norms": [record.gradient_norm for record in training.records],
        "judged": [one.loss for one in training.judgements],
        "targets": [record.num_targets for record in training.records],
    }


if __name__ == "__main__":
    print(json.dumps(distill_as_peer(*map(Path, sys.argv[1:]))))
