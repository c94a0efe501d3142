"""Students of one shape, each taught by one method for equal numbers of tokens."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.kept_models import KeptModels
from paredown.distill.distill import DistillConfig
from paredown.distill.train_config import TrainConfig
from paredown.jobs.distill import DistilledCheckpoint, distill_and_verify
from paredown.jobs.verify_config import VerifyConfig
from paredown.spec.device import Device

TEXT_METHODS = ("hard-label", "soft-label", "kl", "reverse-kl", "jsd", "slim", "gkd")
FEATURE_METHODS = ("tinybert", "weights", "boundaries", "gradients")
# Learns from its own texts, which must make sense: it begins as the student of soft labels.
AFTER_SOFT_LABEL = "minillm"
METHODS = (*TEXT_METHODS, *FEATURE_METHODS, AFTER_SOFT_LABEL)


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """Holds what all students have in common. `teacher` None is the built-in model."""

    teacher: str | None
    student: str
    num_tokens: int
    num_text_tokens: int
    batch_tokens: int
    train_device: Device

    def teach(self, method: str, student: str, output: Path) -> DistilledCheckpoint:
        config = DistillConfig(
            train=TrainConfig(
                num_tokens=self.num_tokens,
                batch_tokens=self.batch_tokens,
                device=self.train_device,
            ),
            student=student,
            method=method,
        )
        verify = VerifyConfig(num_tokens=self.num_text_tokens)
        return distill_and_verify(self.teacher, output, config, verify=verify, overwrite=True)


def measure_students(
    lessons: Lessons, methods: list[str], models: KeptModels
) -> dict[str, dict[str, Any]]:
    """Returns the figures of each student by its method."""
    found = {}
    for method in methods:

        def make(path: Path, method: str = method) -> dict[str, Any]:
            start = lessons.student
            if method == AFTER_SOFT_LABEL:
                start = str(models.model("soft-label"))
            return figures_of(lessons.teach(method, start, path))

        found[method] = models.figures(method, make)
        print(f"{method}: {found[method]}", file=sys.stderr)
    return found


def figures_of(made: DistilledCheckpoint) -> dict[str, Any]:
    training = made.written.training
    assert made.verification is not None, made.not_verified
    assert made.before is not None
    after, teacher = made.verification.compressed, made.verification.original
    return {
        "minutes": training.records[-1].elapsed_s / 60,
        "num_tokens": training.num_tokens,
        "before": {"kl": made.before.kl_divergence, "perplexity": made.before.perplexity},
        "kl": after.kl_divergence,
        "perplexity": after.perplexity,
        "top1_agreement": after.top1_agreement,
        "teacher_perplexity": teacher.perplexity,
    }
