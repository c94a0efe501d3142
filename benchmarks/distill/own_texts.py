"""MiniLLM beside the student that it starts from: the reverse KL divergence on their own texts."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.distill.held_out_prompts import held_out_prompts, one_pass
from benchmarks.distill.students import AFTER_SOFT_LABEL, Lessons, figures_of
from benchmarks.kept_models import KeptModels
from paredown.distill.arithmetic import choose_arithmetic
from paredown.distill.forward import fuse_attention
from paredown.distill.on_policy.own_divergence import own_divergence
from paredown.distill.teacher import DecoderTeacher
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.resolve import resolve_model

_START = "soft-label"


@dataclass(frozen=True, kw_only=True)
class OwnTexts:
    """Students go on from `num_prompts` beginnings of `prompt_tokens` by `new_tokens`."""

    num_prompts: int = 256
    prompt_tokens: int = 32
    new_tokens: int = 96


def measure_own_texts(lessons: Lessons, texts: OwnTexts, models: KeptModels) -> dict[str, Any]:
    """Returns the figures of a student of soft labels, and of what MiniLLM makes of it with as many
    tokens again."""
    found = {}
    for method, start in (
        (_START, lessons.student),
        (AFTER_SOFT_LABEL, str(models.model(_START))),
    ):

        def make(path: Path, method: str = method, start: str = start) -> dict[str, Any]:
            figures = figures_of(lessons.teach(method, start, path))
            return figures | {"own_reverse_kl": own_reverse_kl(lessons.teacher, path, texts)}

        found[method] = models.figures(method, make)
        print(f"{method}: {found[method]}", file=sys.stderr)
    return found


def own_reverse_kl(teacher: str | None, student: Path, texts: OwnTexts) -> float:
    """Returns the mean divergence of the student from its teacher at a token of its own texts."""
    source = resolve_model(teacher)
    known = DecoderTeacher.load(Checkpoint.open(source), choose_arithmetic("cpu"))
    decoder = Decoder.from_checkpoint(Checkpoint.open(student))
    fuse_attention(decoder)
    prompts = held_out_prompts(source, texts.num_prompts, texts.prompt_tokens)
    sampling, num_steps = one_pass(student, prompts, texts.new_tokens)
    return own_divergence(decoder, known, sampling, num_steps)


def show_own_texts(found: dict[str, Any]) -> None:
    table = Table("method", "reverse KL, own texts", "KL", "perplexity", "minutes")
    for method, own in found.items():
        table.add_row(
            method,
            f"{own['own_reverse_kl']:.4f}",
            f"{own['kl']:.4f}",
            f"{own['perplexity']:.2f}",
            f"{own['minutes']:.1f}",
        )
    Console().print(table)
