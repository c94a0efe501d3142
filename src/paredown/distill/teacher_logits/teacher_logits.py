"""TeacherLogits: where a teacher's distributions are kept, and what of them."""

from dataclasses import dataclass
from pathlib import Path

from paredown.distill.teacher_logits.keep import Keep
from paredown.distill.teacher_logits.keeps import parse_keep

DEFAULT_KEEP = "samples-50"


@dataclass(frozen=True, kw_only=True)
class TeacherLogits:
    """`folder` is written unless it holds them already. `keep` is samples-N, top-K,
    top-K-renormalized or whole. Raises ConfigError for anything else."""

    folder: Path
    keep: str = DEFAULT_KEEP

    def __post_init__(self) -> None:
        _ = self.kept

    @property
    def kept(self) -> Keep:
        return parse_keep(self.keep)
