"""StudentBatches: what the student itself, or its teacher, goes on with from prompts.

Generalized knowledge distillation (GKD, arXiv 2306.13649) compares both distributions on such
texts (losses/jsd.py). A teacher's share of 1 is the teacher's own text, from which a student learns
hard labels (sequence-level distillation, arXiv 1606.07947) or soft ones.
"""

from dataclasses import dataclass

from paredown.distill.batch import Batch
from paredown.distill.on_policy.sample import sample
from paredown.distill.on_policy.sampling import Sampling
from paredown.distill.teacher import DecoderTeacher
from paredown.errors import ConfigError
from paredown.models.decoder.decoder import Decoder


@dataclass(frozen=True, kw_only=True)
class StudentBatches:
    """Implements BatchSource. `teacher_share` of the distribution that is drawn from is the
    teacher's. Raises ConfigError for a share out of range, or without a teacher."""

    sampling: Sampling
    teacher: DecoderTeacher | None = None
    teacher_share: float = 0.0

    def __post_init__(self) -> None:
        check_teacher_share(self.teacher_share)
        if self.teacher is None and self.teacher_share > 0:
            raise ConfigError(
                "a mixture with a teacher needs one",
                seen=f"teacher's share {self.teacher_share:g}",
                remedy="Give a teacher, or a share of 0.",
            )

    @property
    def num_rows(self) -> int:
        return self.sampling.num_rows

    @property
    def step_tokens(self) -> int:
        return self.sampling.step_tokens

    def batch(self, step: int, student: Decoder) -> Batch:
        teacher = self.teacher if self.teacher_share > 0 else None
        return sample(student, self.sampling, step, teacher, self.teacher_share).batch()


def check_teacher_share(share: float) -> None:
    """Raises ConfigError unless it is a share."""
    if not 0 <= share <= 1:
        raise ConfigError(
            "the teacher's share of the distribution that is drawn from is out of range",
            seen=share,
            remedy="Give a share from 0 (the student alone) to 1 (the teacher alone).",
        )
