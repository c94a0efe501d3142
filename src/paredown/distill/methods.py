"""The ways a student learns from its teacher, by the names that people type."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from paredown.distill.batch_source import BatchSource
from paredown.distill.features.feature_methods import (
    FEATURE_METHODS,
    FeatureMethod,
    FeatureSetting,
)
from paredown.distill.features.layer_map import checked_inside
from paredown.distill.lesson_size import LessonSize
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
from paredown.distill.on_policy.open_reward import open_reward
from paredown.distill.on_policy.policy_objective import PolicyObjective, check_kl_weight
from paredown.distill.on_policy.prompts import Prompts
from paredown.distill.on_policy.reward_batches import RewardBatches
from paredown.distill.on_policy.reward_log import RewardLog
from paredown.distill.on_policy.sampling import Sampling
from paredown.distill.on_policy.staged_batches import warmed
from paredown.distill.on_policy.student_batches import StudentBatches
from paredown.distill.row_batches import RowBatches
from paredown.distill.rows import BatchRows, Rows
from paredown.distill.teacher import DecoderTeacher, Teacher
from paredown.distill.text_objective import objective_for
from paredown.distill.train_config import TrainConfig
from paredown.errors import ConfigError
from paredown.models.decoder.decoder import Decoder
from paredown.spec.model import ModelSpec


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
    `feature_weight` of the teacher's features beside its distribution; 0.1 was the best of four for
                     tinybert on the built-in model
    `layer_map`      the teacher's layer that is compared inside (features/layer_map.py)
    `reward`         of reward: "module:callable" or an address (on_policy/open_reward.py)
    `kl_weight`      of the divergence from the teacher beside the reward
    `num_answers`    to a prompt, which are compared with each other
    `warm_share`     of the steps that learn from texts before those that learn from the reward
    `prompt_tokens`  the most tokens of a text that gkd, minillm and reward go on from
    `new_tokens`     the most tokens that they add
    """

    temperature: float = 1.0
    label_weight: float = 0.1
    beta: float = 0.5
    alpha: float = 1.0
    top_share: float = 0.05
    own_share: float = 0.5
    teacher_share: float = 0.2
    feature_weight: float = 0.1
    layer_map: str = "first"
    reward: str = ""
    kl_weight: float = 0.05
    num_answers: int = 4
    warm_share: float = 0.0
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
    """Holds what a method has at hand. `teacher` is there where the method asks for it, or `stored`
    in its place where its distributions are read from disk; `stop_ids` end a text that is sampled,
    and `decode` makes words of its tokens."""

    student: Decoder
    teacher: DecoderTeacher | None
    options: MethodOptions
    rows: BatchRows
    train: TrainConfig
    stop_ids: frozenset[int] = frozenset()
    stored: Teacher | None = None
    decode: Callable[[Sequence[int]], str] | None = None

    @property
    def known_teacher(self) -> DecoderTeacher:
        assert self.teacher is not None
        return self.teacher

    @property
    def row_batches(self) -> RowBatches:
        return RowBatches.of(self.rows, self.train)

    def sampling(self, num_each: int = 1) -> Sampling:
        """Returns how texts are sampled from the student, `num_each` from a prompt. A step has as
        many tokens as one of rows, or the texts of one prompt."""
        assert isinstance(self.rows, Rows), "encoders sample no texts"
        prompts = Prompts.of_rows(self.rows, self.options.prompt_tokens)
        num_tokens = prompts.num_tokens + self.options.new_tokens
        return Sampling(
            prompts=prompts,
            max_new_tokens=self.options.new_tokens,
            stop_ids=self.stop_ids,
            arithmetic=self.train.chosen_arithmetic,
            num_prompts=max(1, self.train.step_rows(num_tokens) // num_each),
            num_each=num_each,
            seed=self.train.seed,
        )


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Says what a training lowers, and on which batches. `parameters` are trained beside the
    student's and not stored. `notes` say afterwards how it went since it was started or resumed."""

    objective: Objective
    source: BatchSource
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    notes: Callable[[], tuple[str, ...]] = tuple


def _no_size(options: MethodOptions, student: ModelSpec, teacher: ModelSpec) -> LessonSize:
    return LessonSize()


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to learn. `needs_teacher` says that it looks at the teacher's whole distribution, for
    which both need the same vocabulary; `samples` that it learns from what the student writes, and
    `compares_answers` that it compares several answers to a prompt. `is_judged` says that held-out
    text shows how well it learns, `is_shared` that several processes can train by it, and
    `suits_encoders` that it needs no predicted tokens. `loss` is
    there where the method needs no more of its teacher than the distributions of the text's tokens.
    `check` raises ConfigError for options out of range. `size` returns the memory it takes beside a
    student and a teacher, and raises UnsupportedError where these do not fit together."""

    summary: str
    check: Callable[[MethodOptions], object]
    lesson: Callable[[Setting], Lesson]
    needs_teacher: bool = True
    samples: bool = False
    compares_answers: bool = False
    loss: Callable[[MethodOptions], TokenLoss] | None = None
    is_judged: bool = True
    is_shared: bool = True
    suits_encoders: bool = False
    size: Callable[[MethodOptions, ModelSpec, ModelSpec], LessonSize] = _no_size


def by_loss(
    summary: str,
    make_loss: Callable[[MethodOptions], TokenLoss],
    *,
    suits_encoders: bool = True,
) -> Method:
    """Returns a method that lowers a loss of each target's logits, or of each text's labels or
    vector."""

    def lesson(setting: Setting) -> Lesson:
        teacher = setting.stored or setting.teacher
        objective = objective_for(setting.student.spec, make_loss(setting.options), teacher)
        return Lesson(objective=objective, source=setting.row_batches)

    needs_teacher = make_loss(MethodOptions()).needs_teacher
    return Method(
        summary=summary,
        needs_teacher=needs_teacher,
        check=make_loss,
        lesson=lesson,
        loss=make_loss,
        suits_encoders=suits_encoders,
    )


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
    sampled = StudentBatches(sampling=setting.sampling())
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
        sampling=setting.sampling(), teacher=teacher, teacher_share=setting.options.teacher_share
    )
    # Held-out text is judged by what MiniLLM lowers on the student's own.
    objective = PolicyObjective(kl_weight=1.0, teacher=teacher, text_loss=ReverseKL())
    return Lesson(objective=objective, source=source)


def _check_reward(options: MethodOptions) -> None:
    check_share("--warm-share", options.warm_share)
    check_kl_weight(options.kl_weight)
    if options.num_answers < 2:
        raise ConfigError(
            "an answer is compared with others to its prompt",
            seen=f"--num-answers {options.num_answers}",
            remedy="Give at least 2.",
        )
    if not options.reward:
        raise ConfigError(
            "there is no reward to learn from",
            seen="no --reward",
            remedy="Give --reward module:callable, or an http address.",
        )
    _ = open_reward(options.reward)


def _reward(setting: Setting) -> Lesson:
    options, log = setting.options, RewardLog()
    assert setting.decode is not None
    source: BatchSource = RewardBatches(
        sampling=setting.sampling(options.num_answers),
        reward=open_reward(options.reward),
        decode=setting.decode,
        on_rewards=log.add,
    )
    if options.warm_share:
        source = warmed(setting.row_batches, source, options.warm_share, setting.train.num_tokens)
    objective = PolicyObjective(kl_weight=options.kl_weight, teacher=setting.known_teacher)
    return Lesson(objective=objective, source=source, notes=log.notes)


def by_features(feature: FeatureMethod) -> Method:
    """Returns a method that learns from features and, as soft-label does, from logits."""

    def check(options: MethodOptions) -> None:
        _soft_label(options)
        checked_inside(options.layer_map)
        if not 0 <= options.feature_weight < math.inf:
            raise ConfigError(
                "the weight of the teacher's features is out of range",
                seen=options.feature_weight,
                remedy="Give a number from 0; 0 learns from the teacher's distribution alone.",
            )

    def lesson(setting: Setting) -> Lesson:
        objective, parameters = feature.make(
            FeatureSetting(
                student=setting.student,
                teacher=setting.known_teacher,
                text_loss=_soft_label(setting.options),
                weight=setting.options.feature_weight,
                inside=checked_inside(setting.options.layer_map),
                seed=setting.train.seed,
                rows=setting.rows,
            )
        )
        return Lesson(objective=objective, source=setting.row_batches, parameters=parameters)

    def size(options: MethodOptions, student: ModelSpec, teacher: ModelSpec) -> LessonSize:
        return feature.size(student, teacher, checked_inside(options.layer_map))

    return Method(
        summary=feature.summary,
        check=check,
        lesson=lesson,
        size=size,
        suits_encoders=feature.suits_encoders,
    )


def check_share(option: str, share: float) -> None:
    """Raises ConfigError unless it is a share."""
    if not 0 <= share <= 1:
        raise ConfigError(f"{option} is no share", seen=share, remedy="Give a number from 0 to 1.")


METHODS: dict[str, Method] = {
    "soft-label": by_loss("the teacher's whole distribution, and the text's token", _soft_label),
    "kl": by_loss("the teacher's whole distribution alone (forward KL)", _kl),
    "reverse-kl": by_loss("to say only what the teacher would say", _reverse_kl),
    "jsd": by_loss("a compromise of kl and reverse-kl", _jsd),
    "slim": by_loss(
        "the text's token, and the teacher's likeliest tokens", _slim, suits_encoders=False
    ),
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
    "reward": Method(
        summary="a reward of what the student writes, near its teacher",
        check=_check_reward,
        lesson=_reward,
        samples=True,
        compares_answers=True,
        is_judged=False,
        is_shared=False,
    ),
    **{name: by_features(feature) for name, feature in FEATURE_METHODS.items()},
    "hard-label": by_loss("the text's tokens, or labels, alone", lambda options: CrossEntropy()),
}


# Stands for the method that suits what is given.
AUTO = "auto"


def find_method(name: str) -> Method:
    """Returns the method of that name. Raises ConfigError for an unknown one."""
    if name not in METHODS:
        raise ConfigError(
            "there is no such way to distill",
            seen=name,
            remedy=f"Give one of {', '.join(METHODS)}, or {AUTO}.",
        )
    return METHODS[name]
