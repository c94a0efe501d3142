"""The ways a student learns from its teacher, by the names that people type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from paredown.distill.batch_source import BatchSource
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.jsd import JSD
from paredown.distill.losses.kl import KL
from paredown.distill.losses.reverse_kl import ReverseKL
from paredown.distill.losses.slim import SLIM
from paredown.distill.losses.soft_label import SoftLabel
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.objective import LogitObjective, Objective
from paredown.distill.on_policy.minillm import MiniLLMBatches
from paredown.distill.on_policy.mixed_batches import MixedBatches
from paredown.distill.on_policy.policy_objective import PolicyObjective
from paredown.distill.on_policy.prompts import Prompts
from paredown.distill.on_policy.sampling import Sampling
from paredown.distill.on_policy.student_batches import StudentBatches
from paredown.distill.row_batches import RowBatches
from paredown.distill.rows import Rows
from paredown.distill.teacher import DecoderTeacher
from paredown.distill.train_config import TrainConfig
from paredown.errors import ConfigError
from paredown.models.decoder.decoder import Decoder


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """Numbers of the methods; each takes those that it has. Raises ConfigError for lengths of
    sampled texts that are not positive.

    `temperature`    of the teacher's distribution and the student's
    `label_weight`   of the text's own tokens beside the teacher's distribution
    `beta`           the teacher's share of the mixture in jsd and gkd
    `alpha`          the most that the teacher counts beside the label in slim
    `top_share`      of the vocabulary, the teacher's likeliest tokens, that slim looks at
    `own_share`      of the steps of gkd that learn from what the student writes itself
    `teacher_share`  of the distribution from which minillm draws
    `prompt_tokens`  the most tokens of a text that gkd and minillm go on from
    `new_tokens`     the most tokens that they add
    """

    temperature: float = 1.0
    label_weight: float = 0.1
    beta: float = 0.5
    alpha: float = 1.0
    top_share: float = 0.05
    own_share: float = 0.5
    teacher_share: float = 0.2
    prompt_tokens: int = 32
    new_tokens: int = 96

    def __post_init__(self) -> None:
        if min(self.prompt_tokens, self.new_tokens) < 1:
            raise ConfigError(
                "texts that are sampled need a prompt and new tokens",
                seen=f"{self.prompt_tokens} and {self.new_tokens}",
                remedy="Give at least 1 of each.",
            )


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Holds what a method has at hand. `teacher` is there where the method asks for it; `stop_ids`
    end a text that is sampled."""

    student: Decoder
    teacher: DecoderTeacher | None
    options: MethodOptions
    rows: Rows
    train: TrainConfig
    stop_ids: frozenset[int] = frozenset()

    @property
    def known_teacher(self) -> DecoderTeacher:
        assert self.teacher is not None
        return self.teacher

    @property
    def row_batches(self) -> RowBatches:
        return RowBatches.of(self.rows, self.train)

    @property
    def sampling(self) -> Sampling:
        """How texts are sampled from the student. A step has as many tokens as one of rows."""
        prompts = Prompts.of_rows(self.rows, self.options.prompt_tokens)
        num_tokens = prompts.num_tokens + self.options.new_tokens
        return Sampling(
            prompts=prompts,
            max_new_tokens=self.options.new_tokens,
            stop_ids=self.stop_ids,
            arithmetic=self.train.chosen_arithmetic,
            num_prompts=self.train.step_rows(num_tokens),
            seed=self.train.seed,
        )


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Says what a training lowers, and on which batches. `parameters` are trained beside the
    student's and not stored."""

    objective: Objective
    source: BatchSource
    parameters: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to learn. `needs_teacher` says that it looks at the teacher's whole distribution, for
    which both need the same vocabulary; `samples` that it learns from what the student writes.
    `check` raises ConfigError for options out of range."""

    summary: str
    check: Callable[[MethodOptions], object]
    lesson: Callable[[Setting], Lesson]
    needs_teacher: bool = True
    samples: bool = False


def by_loss(summary: str, make_loss: Callable[[MethodOptions], TokenLoss]) -> Method:
    """Returns a method that lowers a loss of each target's logits."""

    def lesson(setting: Setting) -> Lesson:
        objective = LogitObjective(loss=make_loss(setting.options), teacher=setting.teacher)
        return Lesson(objective=objective, source=setting.row_batches)

    needs_teacher = make_loss(MethodOptions()).needs_teacher
    return Method(summary=summary, needs_teacher=needs_teacher, check=make_loss, lesson=lesson)


def _kl(options: MethodOptions) -> TokenLoss:
    return KL(temperature=options.temperature)


def _reverse_kl(options: MethodOptions) -> TokenLoss:
    return ReverseKL(temperature=options.temperature)


def _jsd(options: MethodOptions) -> TokenLoss:
    return JSD(beta=options.beta, temperature=options.temperature)


def _soft_label(options: MethodOptions) -> TokenLoss:
    return SoftLabel(temperature=options.temperature, label_weight=options.label_weight)


def _slim(options: MethodOptions) -> TokenLoss:
    return SLIM(alpha=options.alpha, share=options.top_share, temperature=options.temperature)


def _check_gkd(options: MethodOptions) -> None:
    _jsd(options)
    check_share("--own-share", options.own_share)


def _gkd(setting: Setting) -> Lesson:
    options = setting.options
    sampled = StudentBatches(sampling=setting.sampling)
    return Lesson(
        objective=LogitObjective(loss=_jsd(options), teacher=setting.teacher),
        source=MixedBatches(
            sampled=sampled,
            given=setting.row_batches,
            sampled_share=options.own_share,
            seed=setting.train.seed,
        ),
    )


def _check_minillm(options: MethodOptions) -> None:
    check_share("--teacher-share", options.teacher_share)


def _minillm(setting: Setting) -> Lesson:
    teacher = setting.known_teacher
    source = MiniLLMBatches(
        sampling=setting.sampling, teacher=teacher, teacher_share=setting.options.teacher_share
    )
    # Held-out text is judged by what MiniLLM lowers on the student's own.
    objective = PolicyObjective(kl_weight=1.0, teacher=teacher, text_loss=ReverseKL())
    return Lesson(objective=objective, source=source)


def check_share(option: str, share: float) -> None:
    """Raises ConfigError unless it is a share."""
    if not 0 <= share <= 1:
        raise ConfigError(f"{option} is no share", seen=share, remedy="Give a number from 0 to 1.")


METHODS: dict[str, Method] = {
    "soft-label": by_loss("the teacher's whole distribution, and the text's token", _soft_label),
    "kl": by_loss("the teacher's whole distribution alone (forward KL)", _kl),
    "reverse-kl": by_loss("to say only what the teacher would say", _reverse_kl),
    "jsd": by_loss("a compromise of kl and reverse-kl", _jsd),
    "slim": by_loss("the text's token, and the teacher's likeliest tokens", _slim),
    "gkd": Method(
        summary="jsd, for a share of the steps on texts that the student writes itself",
        check=_check_gkd,
        lesson=_gkd,
        samples=True,
    ),
    "minillm": Method(
        summary="reverse-kl of whole texts that the student writes itself",
        check=_check_minillm,
        lesson=_minillm,
        samples=True,
    ),
    "hard-label": by_loss("the text's tokens alone", lambda options: CrossEntropy()),
}


def find_method(name: str) -> Method:
    """Returns the method of that name. Raises ConfigError for an unknown one."""
    if name not in METHODS:
        raise ConfigError(
            "there is no such way to distill",
            seen=name,
            remedy=f"Give one of {', '.join(METHODS)}.",
        )
    return METHODS[name]
